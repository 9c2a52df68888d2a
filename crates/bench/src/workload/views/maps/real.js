function (doc) {
  // build ROUND
  if (doc.type !== "declaration") return;
  var income = 0, assets = 0, debts = 0, moved = 0;
  for (var i = 0; i < doc.income.length; i++) {
    var received = doc.income[i];
    if (received.year === doc.year && received.taxed) income += received.amount;
  }
  doc.assets.forEach(function (asset) {
    asset.owners.forEach(function (owner) {
      if (owner.code === doc.declarant.code) assets += asset.amount * owner.share;
    });
  });
  for (var j = 0; j < doc.liabilities.length; j++) {
    if (!doc.liabilities[j].settled) debts += doc.liabilities[j].amount;
  }
  for (var k = 0; k < doc.transfers.length; k++) {
    var transfer = doc.transfers[k];
    moved += transfer.direction === "in" ? transfer.amount : -transfer.amount;
  }
  emit([doc.year, doc.declarant.region, doc.declarant.code], [income, assets, debts, moved]);
}
