function (doc) {
  // build ROUND
  emit([doc.n % 10, doc.n], 1);
}
