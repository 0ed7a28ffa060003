"""Writes debian/copyright (DEP-5): mailroom, and each crate that is linked into the library or the program.

Usage: copyright.py OUTPUT [FOLDER]; the licence files of the crates are copied to FOLDER, a folder for each crate.
The crates are those of Cargo.lock that cargo would link for Linux; cargo has their sources in its registry.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OURS = ("mailroom", "mailroom-cli", "mailroom-core")
LICENCE_FILE = re.compile(r"^(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)", re.IGNORECASE)
COPYRIGHT = re.compile(r"^\s*(copyright\b.*(\d{4}|\(c\)|©).*)$", re.IGNORECASE)
# Where the text of a licence is found in a crate that has several.
TEXT_OF = {
    "MIT": r"MIT",
    "ISC": r"ISC",
    "Zlib": r"ZLIB",
    "BSL-1.0": r"BOOST",
    "Unlicense": r"^UNLICENSE",
    "LLVM-exception": r"LLVM",
    "Unicode-3.0": r"UNICODE",
}
APACHE = """On Debian systems, the full text of the Apache License, Version 2.0, is in
/usr/share/common-licenses/Apache-2.0."""


def linked_crates():
    """The crates whose code is in the library or the program: no build dependencies, and no macros' own."""
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--filter-platform=x86_64-unknown-linux-gnu"]
    metadata = json.loads(subprocess.check_output(command, cwd=ROOT))
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    waiting = [id for id, package in packages.items() if package["name"] in OURS and package["source"] is None]
    seen = set()
    while waiting:
        id = waiting.pop()
        is_macro = any("proc-macro" in target["kind"] for target in packages[id]["targets"])
        if id in seen or is_macro:
            continue
        seen.add(id)
        for dependency in nodes[id]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                waiting.append(dependency["pkg"])
    linked = [packages[id] for id in seen if packages[id]["source"]]
    return sorted(linked, key=lambda package: (package["name"], package["version"]))


def licence_files(package):
    """The paths of a crate's licence files; those in a folder of that name as well."""
    folder = pathlib.Path(package["manifest_path"]).parent
    for path in sorted(folder.iterdir()):
        if LICENCE_FILE.match(path.name):
            yield from [path] if path.is_file() else sorted(path.iterdir())


def read(path):
    return path.read_text(encoding="utf-8", errors="replace")


def holder(line):
    """A line about copyright without that word before it."""
    return re.sub(r"^\s*copyright\s*:?\s*(\(c\)|©)?\s*", "", line, flags=re.IGNORECASE).strip()


def holders(package):
    """Who has the copyright: the lines of the licence files, or the authors."""
    lines = []
    for path in licence_files(package):
        # The Apache licence has such lines in its appendix, for others to fill in.
        if "APACHE" not in path.name.upper():
            lines += [holder(match[1]) for match in map(COPYRIGHT.match, read(path).splitlines()) if match]
    lines = [line for line in dict.fromkeys(lines) if "[yyyy]" not in line and "<year>" not in line]
    return lines or package["authors"] or [f"the authors of {package['name']}"]


def expression(package):
    """The licence as DEP-5 writes it."""
    text = package["license"].replace("/", " OR ")
    text = re.sub(r"Apache-2\.0 WITH LLVM-exception", "Apache-2.0-with-LLVM-exception", text)
    text = re.sub(r"\s+", " ", text).replace(" OR ", " or ").replace(" AND ", " and ")
    # DEP-5 has no parentheses; a comma separates an "and" from the "or" before it.
    match = re.fullmatch(r"\((.*)\) and (.*)", text)
    return f"{match[1]}, and {match[2]}" if match else text


def names(text):
    return [name for name in re.split(r",? (?:and|or) ", text) if name]


def licence_text(name, crates):
    """The text of a licence, from the first crate that has it in a file of its own."""
    if name == "Apache-2.0":
        return APACHE
    wanted = name.removeprefix("Apache-2.0-with-")
    for package in crates:
        if name not in names(expression(package)):
            continue
        alone = names(expression(package)) == [name]
        for path in licence_files(package):
            is_it = re.search(TEXT_OF[wanted], path.name, re.IGNORECASE) if wanted in TEXT_OF else False
            if is_it or (alone and path.name.startswith("LICENSE")):
                lines = [line.rstrip() for line in read(path).splitlines() if not COPYRIGHT.match(line)]
                text = "\n".join(lines).strip()
                # Of a licence with an exception, the exception: the licence is one that Debian has.
                if name != wanted:
                    text = APACHE + "\n\n" + text[text.index("--- LLVM Exceptions"):]
                return text
    raise SystemExit(f"copyright.py: no crate has the text of {name}")


def field(text):
    """Continuation lines of DEP-5."""
    return "\n".join(" " + (line or ".") for line in text.splitlines())


def write(output):
    crates = linked_crates()
    own = read(ROOT / "LICENSE").strip()
    used = {name for package in crates for name in names(expression(package))}
    parts = [
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"
        "Upstream-Name: mailroom\n"
        "Comment: Library and program contain the crates below, whose sources cargo has in its registry.\n"
        " This file is generated by packaging/copyright.py.",
        "Files: *\nCopyright: " + holder(next(line for line in own.splitlines() if COPYRIGHT.match(line)))
        + "\nLicense: PostgreSQL\n" + field(re.sub(r"\A.*?(?=Permission)", "", own, flags=re.DOTALL)),
    ]
    for package in crates:
        notices = [read(path).strip() for path in licence_files(package) if path.name.upper().startswith("NOTICE")]
        parts.append(
            f"Files: crates/{package['name']}-{package['version']}/*\n"
            + "Copyright: " + "\n ".join(holders(package)) + "\n"
            + "License: " + expression(package)
            + "".join("\nComment: Its file NOTICE says:\n" + field(notice) for notice in notices)
        )
    for name in sorted(used):
        parts.append(f"License: {name}\n" + field(licence_text(name, crates)))
    pathlib.Path(output).write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return crates


def copy_licences(crates, folder):
    for package in crates:
        target = pathlib.Path(folder) / f"{package['name']}-{package['version']}"
        for path in licence_files(package):
            os.makedirs(target, exist_ok=True)
            shutil.copyfile(path, target / path.name)


if __name__ == "__main__":
    linked = write(sys.argv[1])
    if len(sys.argv) > 2:
        copy_licences(linked, sys.argv[2])
