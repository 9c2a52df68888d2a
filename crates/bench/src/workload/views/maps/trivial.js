function (doc) {
  // build ROUND
  emit([doc.type, doc.year], 1);
}
