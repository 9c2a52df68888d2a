function (doc) {
  // build ROUND
  if (doc.type === "order") emit(doc.customer, doc.amount);
}
