function (doc, before, user, security) {
  function refuse(reason) {
    throw { forbidden: reason };
  }
  function listed(list, value) {
    return Array.isArray(list) && list.indexOf(value) >= 0;
  }
  var serverAdmin = user.roles.indexOf('_admin') >= 0;
  var admins = (security && security.admins) || {};
  var admin = serverAdmin || listed(admins.names, user.name) ||
    user.roles.some(function (role) { return listed(admins.roles, role); });
  var old = before && !before._deleted ? before : null;

  if (doc._deleted) {
    if (!serverAdmin && !(old && user.name && old.name === user.name)) {
      refuse('Only admins may delete other user docs.');
    }
    return;
  }
  if (doc.type !== 'user') refuse('doc.type must be user');
  if (!doc.name) refuse('doc.name is required');
  if (!doc.roles) refuse('doc.roles must exist');
  if (!Array.isArray(doc.roles)) refuse('doc.roles must be an array');
  doc.roles.forEach(function (role) {
    if (typeof role !== 'string') refuse('doc.roles can only contain strings');
  });
  if (typeof doc.name !== 'string' || doc._id !== 'org.couchdb.user:' + doc.name) {
    refuse('Doc ID must be of the form org.couchdb.user:name');
  }
  if (old && old.name !== doc.name) refuse('Usernames can not be changed.');
  if (doc.password_sha && !doc.salt) {
    refuse('Users with password_sha must have a salt.See /_utils/script/couch.js for example code.');
  }
  if (doc.password_scheme && ['simple', 'pbkdf2'].indexOf(doc.password_scheme) < 0) {
    refuse('Password scheme `' + doc.password_scheme + '` not supported.');
  }
  if (doc.password_scheme === 'pbkdf2') {
    if (typeof doc.iterations !== 'number') refuse('iterations must be a number.');
    if (typeof doc.derived_key !== 'string') refuse('derived_key must be a string.');
  }
  if (!admin && old) {
    if (user.name !== doc.name) refuse('You may only update your own user document.');
    var was = JSON.stringify((old.roles || []).slice().sort());
    if (was !== JSON.stringify(doc.roles.slice().sort())) refuse('Only _admin may edit roles');
  }
  if (!admin && !old && doc.roles.length > 0) refuse('Only _admin may set roles');
  doc.roles.forEach(function (role) {
    if (role[0] === '_' && role !== '_metrics') refuse('No system roles (starting with underscore) in users db.');
  });
  if (doc.name[0] === '_') refuse('Username may not start with underscore.');
  if (doc.name.indexOf(':') >= 0) refuse('Character `:` is not allowed in usernames.');
}
