#!/bin/sh
# Puts together the file system of the container image: the programs, the four libraries that they are linked with, the
# certificates of public authorities, a user, and nothing else; no shell. Run in the first stage of the Containerfile, and
# by tests where there are no containers. Needs a Debian with libstdc++6 and ca-certificates.
#
#   root.sh TARBALL ROOT        TARBALL is a release's, ROOT a folder that does not exist
set -eu
tarball=$1 root=$2
user=5984 # as in CouchDB's image, so that volumes keep their owner

mkdir -p "$root/usr/bin" "$root/usr/share/settee" "$root/usr/share/doc" "$root/etc/ssl/certs" "$root/tmp" "$root/var/lib/settee" \
  "$root/dev" "$root/proc" "$root/sys"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -xzf "$tarball" -C "$work" --strip-components=1
cp "$work/bin/settee" "$work/bin/settee-bench" "$root/usr/bin/"
cp -R "$work/share/settee/." "$root/usr/share/settee/"
cp -R "$work/share/doc/settee" "$root/usr/share/doc/settee"

# Where each library is looked for, with the licences of the packages that they are from.
ldd "$root/usr/bin/settee" "$root/usr/bin/settee-bench" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p; s/^[[:space:]]*\(\/[^ ]*\) (.*/\1/p' | while read -r library; do
  mkdir -p "$root$(dirname "$library")"
  cp -L "$library" "$root$library"
done
for package in libc6 libgcc-s1 libstdc++6 ca-certificates; do
  # The first is a link into another package's in some versions.
  [ -e "/usr/share/doc/$package/copyright" ] || continue
  mkdir -p "$root/usr/share/doc/$package"
  cp -L "/usr/share/doc/$package/copyright" "$root/usr/share/doc/$package/copyright"
done
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
cp -L /etc/os-release "$root/etc/os-release"

printf 'root:x:0:0:root:/:/nonexistent\nsettee:x:%s:%s:Settee:/var/lib/settee:/nonexistent\n' $user $user >"$root/etc/passwd"
printf 'root:x:0:\nsettee:x:%s:\n' $user >"$root/etc/group"
printf 'hosts: files dns\n' >"$root/etc/nsswitch.conf"

chmod -R u=rwX,go=rX "$root"
chmod 1777 "$root/tmp"
chmod 0700 "$root/var/lib/settee"
chown -R 0:0 "$root"
chown $user:$user "$root/var/lib/settee"
