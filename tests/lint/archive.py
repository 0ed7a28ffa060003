"""The part of `make lint` that looks at the archive of `make dist`, which is of the last commit.

Usage: archive.py ZIP. It has the committed files and no others; its META.json has what the PGXN Meta Spec 1.0.0 requires, and
`resources`; each file that META.json names is there, and each version is that of mailroom.control.
"""

import json
import re
import subprocess
import sys
import zipfile

REQUIRED = {"abstract", "license", "maintainer", "meta-spec", "name", "provides", "version"}
OPTIONAL = {"description", "generated_by", "no_index", "prereqs", "release_status", "resources", "tags"}


def check(archive):
    """Yields what is wrong."""
    name = archive.filename.rpartition("/")[2].removesuffix(".zip")
    committed = subprocess.check_output(["git", "ls-tree", "-r", "-z", "--name-only", "HEAD"], text=True).split("\0")[:-1]
    packed = {path.removeprefix(f"{name}/") for path in archive.namelist() if not path.endswith("/")}
    if packed != set(committed):
        yield f"other files than the commit: {sorted(packed ^ set(committed))}"
    meta = json.loads(archive.read(f"{name}/META.json"))
    control = archive.read(f"{name}/mailroom.control").decode()
    version = re.search(r"^default_version = '(.*)'$", control, re.MULTILINE)[1]
    if missing := REQUIRED - meta.keys():
        yield f"META.json lacks {sorted(missing)}"
    if unknown := meta.keys() - REQUIRED - OPTIONAL:
        yield f"META.json has fields that PGXN does not know: {sorted(unknown)}"
    if meta.get("meta-spec", {}).get("version") != "1.0.0":
        yield "META.json is not of version 1.0.0 of the specification"
    if not re.fullmatch(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?", version):
        yield f"{version} is no semantic version"
    if name != f"{meta.get('name')}-{meta.get('version')}" or meta.get("version") != version:
        yield f"{name} is not the name and version of META.json and mailroom.control"
    for extension, provided in meta.get("provides", {}).items():
        if provided.get("version") != version:
            yield f"{extension} is not of version {version} in META.json"
        for part in ("file", "docfile"):
            if provided.get(part) not in packed:
                yield f"META.json names a {part} that is not there: {provided.get(part)}"
    resources = meta.get("resources", {})
    if not {"homepage", "bugtracker", "repository"} <= resources.keys():
        yield "the resources of META.json are homepage, bugtracker and repository"
    if not {"url", "type"} <= resources.get("repository", {}).keys():
        yield "the repository of META.json has no url or no type"


if __name__ == "__main__":
    with zipfile.ZipFile(sys.argv[1]) as given:
        problems = list(check(given))
    print(*problems, sep="\n", file=sys.stderr, end="\n" if problems else "")
    sys.exit(bool(problems))
