"""Writes debian/copyright (DEP-5): mailroom, each crate that is linked into the library or the program, and Rust's standard
library, which is linked too.

Usage: copyright.py OUTPUT [FOLDER]; OUTPUT and the licence files are copied to FOLDER, with a folder for each crate and
`rust` for the standard library. The crates are those of Cargo.lock that cargo would link for Linux on one of PLATFORMS; cargo
has their sources in its registry. OUTPUT is the same for each version of Rust; FOLDER has the files of the one in use.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLATFORMS = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")
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

# Rust's standard library, and the crates in it: copyright and licence.
STANDARD_LIBRARY = {
    "rust": (
        "The Rust Project Developers (see https://thanks.rust-lang.org)\n 2014 Alex Crichton\n"
        " 2019 The Crossbeam Project Developers\n 1991-2024 Unicode, Inc.",
        "MIT or Apache-2.0, and Unicode-3.0",
    ),
    "rust/addr2line": ("2016-2018 The gimli Developers", "Apache-2.0 or MIT"),
    "rust/adler2": ("Jonas Schievink <jonasschievink@gmail.com>", "MIT or Apache-2.0"),
    "rust/cfg_if": ("2014 Alex Crichton", "MIT or Apache-2.0"),
    "rust/compiler_builtins": (
        "The Rust Project Developers (see https://thanks.rust-lang.org)\n"
        " 2009-2016 the contributors to LLVM, listed in its CREDITS.TXT\n"
        " 2018 Jorge Aparicio (libm)\n 2005-2020 Rich Felker and others (musl, from which libm is derived)\n"
        " 1993, 2004 Sun Microsystems (from which musl's mathematics is derived)",
        "MIT and Apache-2.0-with-LLVM-exception",
    ),
    "rust/gimli": ("2015 The Rust Project Developers", "MIT or Apache-2.0"),
    "rust/hashbrown": ("2016 Amanieu d'Antras", "MIT or Apache-2.0"),
    "rust/libc": ("The Rust Project Developers", "MIT or Apache-2.0"),
    "rust/memchr": ("2015 Andrew Gallant", "Unlicense or MIT"),
    "rust/miniz_oxide": (
        "2013-2014 RAD Game Tools and Valve Software\n 2010-2014 Rich Geldreich and Tenacious Software LLC\n"
        " 2017, 2020 Frommi\n 2017-2024 oyvindln",
        "MIT or Zlib or Apache-2.0",
    ),
    "rust/object": ("2015 The Gimli Developers", "Apache-2.0 or MIT"),
    "rust/rustc_demangle": ("2014 Alex Crichton", "MIT or Apache-2.0"),
}


def linked_crates():
    """The crates whose code is in the library or the program: no build dependencies, and no macros' own."""
    command = ["cargo", "metadata", "--format-version=1", "--locked"]
    command += [f"--filter-platform={platform}" for platform in PLATFORMS]
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
    expressions = [expression(package) for package in crates] + [licence for _, licence in STANDARD_LIBRARY.values()]
    used = {name for one in expressions for name in names(one)}
    parts = [
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"
        "Upstream-Name: mailroom\n"
        "Comment: Library and program contain the crates below, whose sources cargo has in its registry, and Rust's\n"
        " standard library, whose sources are at https://github.com/rust-lang/rust.\n"
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
    for folder, (copyright, licence) in STANDARD_LIBRARY.items():
        parts.append(f"Files: {folder}/*\nCopyright: {copyright}\nLicense: {licence}")
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


def copy_rust_licences(folder):
    """The licence files of the toolchain in use, whose standard library may have other crates than those listed here."""
    sysroot = pathlib.Path(subprocess.check_output(["rustc", "--print", "sysroot"], cwd=ROOT, text=True).strip())
    documents = sysroot / "share/doc/rust"
    if not (documents / "COPYRIGHT-library.html").is_file():
        raise SystemExit(f"copyright.py: no COPYRIGHT-library.html in {documents}; build packages with a toolchain from rustup")
    target = pathlib.Path(folder) / "rust"
    os.makedirs(target, exist_ok=True)
    # The other licences there are of the compiler and its documentation.
    texts = [documents / "licenses" / f"{name}.txt" for name in ("Apache-2.0", "LLVM-exception", "MIT", "Unicode-3.0")]
    for path in [documents / "COPYRIGHT-library.html", *texts]:
        shutil.copyfile(path, target / path.name)


if __name__ == "__main__":
    linked = write(sys.argv[1])
    if len(sys.argv) > 2:
        copy_licences(linked, sys.argv[2])
        copy_rust_licences(sys.argv[2])
        shutil.copyfile(sys.argv[1], pathlib.Path(sys.argv[2]) / "copyright")
