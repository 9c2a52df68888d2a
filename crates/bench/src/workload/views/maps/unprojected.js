function (doc) {
  // build ROUND
  var members = 0;
  for (var name in doc) members += name.length;
  emit(doc.customer, members);
}
