"""The Debian package, made by debhelper (packaging/debian) of the tree that the tarball has."""

import email.utils
import os
import pathlib
import re
import shutil
import subprocess

PACKAGING = pathlib.Path(__file__).resolve().parent
MAINTAINER = "The maintainers of Settee <maintainers@settee.invalid>"
# The packages of the libraries that programs are linked with, by the beginnings of the libraries' names.
LIBRARIES = {"ld-linux": "libc6", "libc.": "libc6", "libm.": "libc6", "libgcc_s.": "libgcc-s1", "libstdc++.": "libstdc++6"}


def can_be_made():
    return shutil.which("dh") is not None and shutil.which("dpkg-deb") is not None


def libraries(programs):
    """What a package of these programs depends on, as dpkg-shlibdeps writes it, which has no data of libraries for another architecture.

    Their libraries have the same versions of symbols here: each is in the list of this machine's package, with the package's first
    version that has it.
    """
    versions = {}
    for program in programs:
        said = subprocess.run(["readelf", "--version-info", "--wide", program], capture_output=True, text=True, check=True, env=plain()).stdout
        needs = said[said.index("Version needs section") :]
        for library, names in re.findall(r"File: (\S+) .*\n((?:.*Name: .*\n?)*)", needs):
            [package] = [package for start, package in LIBRARIES.items() if library.startswith(start)]
            versions.setdefault(package, set()).update(re.findall(r"Name: (\S+)", names))
    return ", ".join(f"{package} (>= {first_version(package, names)})" for package, names in sorted(versions.items()))


def first_version(package, names):
    """The first version of a package whose library has all these versions of symbols."""
    path = subprocess.run(["dpkg-query", "--control-path", package, "symbols"], capture_output=True, text=True, check=True).stdout.strip()
    known = dict(re.findall(r"^ (\S+)@\1 (\S+)", pathlib.Path(path).read_text(encoding="utf-8"), re.MULTILINE))
    # The base of another architecture may be a version that this one does not name; every package has those.
    found = [known[name].removesuffix("~") for name in names if name in known]
    return max(found, key=lambda version: [int(part) for part in re.findall(r"\d+", version)])


def plain():
    return {**os.environ, "LC_ALL": "C"}


class Package:
    """A package of a version, for an architecture."""

    def __init__(self, version, epoch, architecture, quick):
        self.version = version
        self.epoch = epoch
        self.architecture = architecture
        self.quick = quick

    def build(self, tree, work, out):
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
        changelog = f"settee ({self.version}) unstable; urgency=medium\n\n  * See /usr/share/doc/settee/CHANGELOG.md.\n\n"
        changelog += f" -- {MAINTAINER}  {email.utils.formatdate(self.epoch)}\n"
        (work / "debian/changelog").write_text(changelog, encoding="utf-8")
        command = ["debian/rules", "binary"]
        done = subprocess.run(command, cwd=work, env=self.environment(root), capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"deb: debhelper failed:\n{done.stdout}{done.stderr}")
        [made] = work.parent.glob("settee_*.deb")
        return pathlib.Path(shutil.move(made, out / made.name))

    def environment(self, root):
        is_foreign = self.architecture.is_foreign
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(("DEB_", "DH_"))},
            **self.architecture.debian_environment(),
            "SETTEE_LIBRARIES": libraries(sorted((root / "usr/bin").iterdir())) if is_foreign else "",
            "SOURCE_DATE_EPOCH": str(self.epoch),
            "DEB_RULES_REQUIRES_ROOT": "no",
            "SETTEE_COMPRESSION": "-Zgzip -z1" if self.quick else "-Zxz",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
        }
