"""Real clients over real sockets: nano, PouchDB, the Cloudant SDK and couchbackup in Node; couchdb, couchdb3, aiocouch,
cloudant and the Cloudant SDK in Python; curl.

Every client script prints `ok NAME` or `not ok NAME: detail` for each thing that it tries, and `done`.
Their packages are installed into the machine's cache, once per version of the lists beside the scripts.
"""

import pathlib

import pytest

from harness.client_scripts import node_version, run_script
from harness.packages import node_modules, virtual_environment

pytestmark = pytest.mark.may_be_retried

NODE_WANTED = 20


@pytest.fixture(scope="module")
def server(suite):
    # They all try wrong passwords from the same address, more often than a server with default settings allows.
    with suite.server(options=["--set", "chttpd_auth_lockout/mode=off"]) as server:
        yield server
        suite.report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])
        left = [name for name in server.api().expect(200, "GET", "/_all_dbs") if not name.startswith("_")]
        suite.report.equal("every client tidied up after itself", left, [])


FOLDER = pathlib.Path(__file__).resolve().parent.parent / "clients"
NODE = {
    "nano 10": ("nano.cjs", {"NANO": "nano-10"}),
    "nano": ("nano.cjs", {}),
    "cloudant (Node)": ("cloudant.cjs", {}),
    "couchbackup": ("couchbackup.cjs", {}),
    "pouchdb": ("pouchdb.cjs", {}),
    "pouchdb with access by document": ("access.cjs", {}),
}
NEED_NEW_NODE = ("nano", "cloudant (Node)", "couchbackup")
PYTHON = {
    "couchdb": "with_couchdb.py",
    "couchdb3": "with_couchdb3.py",
    "cloudant": "with_cloudant.py",
    "ibmcloudant (Python)": "with_ibmcloudant.py",
    "aiocouch": "with_aiocouch.py",
}


def test_curl(suite, server):
    run_script(suite, server, "curl", ["bash", FOLDER / "curl.sh"])


@pytest.mark.parametrize("name", NODE)
def test_in_node(suite, server, name):
    if name in NEED_NEW_NODE and node_version() < NODE_WANTED:
        pytest.skip(f"needs Node {NODE_WANTED}")
    script, environment = NODE[name]
    run_script(suite, server, name, ["node", FOLDER / "js" / script], {"NODE_PATH": str(node_modules(suite, FOLDER / "js")), **environment})


@pytest.mark.parametrize("name", PYTHON)
def test_in_python(suite, server, name):
    python = virtual_environment(suite, FOLDER / "python") / "bin" / "python"
    run_script(suite, server, name, [python, FOLDER / "python" / PYTHON[name]])
