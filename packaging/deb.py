"""The Debian package, made by debhelper (packaging/debian) of the tree that the tarball has."""

import email.utils
import os
import pathlib
import shutil
import subprocess

PACKAGING = pathlib.Path(__file__).resolve().parent
MAINTAINER = "The maintainers of Settee <maintainers@settee.invalid>"


def can_be_made():
    return shutil.which("dh") is not None and shutil.which("dpkg-deb") is not None


def build(tree, work, out, version, epoch, quick):
    """`tree` is what goes below /usr, with `etc`; `work` a folder that does not exist. Answers the package's path."""
    shutil.copytree(PACKAGING / "debian", work / "debian")
    root = work / "root"
    shutil.copytree(tree, root / "usr", ignore=shutil.ignore_patterns("etc", "INSTALL.md", "systemd", "LICENSE"))
    shutil.copytree(tree / "etc", root / "etc")
    # Debian's own place for zsh is another one.
    shutil.move(root / "usr/share/zsh/site-functions", root / "usr/share/zsh/vendor-completions")
    # The unit is the one of the tarball, but for where the program is.
    text = (PACKAGING / "settee.service").read_text(encoding="utf-8")
    (work / "debian/settee.service").write_text(text.replace("@BIN@", "/usr/bin"), encoding="utf-8")
    changelog = f"settee ({version}) unstable; urgency=medium\n\n  * See /usr/share/doc/settee/CHANGELOG.md.\n\n"
    changelog += f" -- {MAINTAINER}  {email.utils.formatdate(epoch)}\n"
    (work / "debian/changelog").write_text(changelog, encoding="utf-8")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("DEB_", "DH_"))},
        "SOURCE_DATE_EPOCH": str(epoch),
        "DEB_RULES_REQUIRES_ROOT": "no",
        "SETTEE_COMPRESSION": "-Zgzip -z1" if quick else "-Zxz",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
    }
    done = subprocess.run(["debian/rules", "binary"], cwd=work, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"deb: debhelper failed:\n{done.stdout}{done.stderr}")
    [made] = work.parent.glob("settee_*.deb")
    return pathlib.Path(shutil.move(made, out / made.name))
