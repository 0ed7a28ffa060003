"""Writes the manual pages mailroom(1), mailroom-send(1), mailroom-check(1), mailroom-receive(1), mailroom-report(1) and
mailroom-serve(1) from the help text of the program.

Usage: manpages.py FOLDER VERSION DATE. The help text has paragraphs, options with their texts in a second column, and the
headings "Signals:" and "Exit codes of mailroom COMMAND:"; "Usage:" and the paragraph that begins with a command say what
belongs to which page. An option of the usage without a text is an error.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HELP = ROOT / "crates/mailroom/src/help.txt"
NAMES = {
    "mailroom": "deliver the mail of PostgreSQL databases with the extension mailroom",
    "mailroom-send": "deliver the mail of databases",
    "mailroom-check": "check a transports file, its transports and databases",
    "mailroom-receive": "record what providers post about mail",
    "mailroom-report": "record a report of failed delivery",
    "mailroom-serve": "show the mail of databases in the browser",
}


def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...")
    return re.sub(r"^([.'])", r"\\&\1", text)


def entries(lines):
    """Definitions: what stands left of the second column, and the lines at its right."""
    found = []
    rows = [re.match(r" *(\S.*?)(?: {2,}(\S.*))?$", line) for line in lines]
    column = next(row.start(2) for row in rows if row[2])
    for line, row in zip(lines, rows):
        if row.start(1) < column:
            found.append([row[1], [row[2]] if row[2] else []])
        else:
            found[-1][1].append(line.strip())
    return found


def render(blocks):
    out = []
    for block in blocks:
        if block[0].startswith(" "):
            for term, text in entries(block):
                out += [".TP", r"\fB" + escape(term) + r"\fR", *map(escape, text)]
        else:
            out += [".PP", *map(escape, block)]
    return out


def pages():
    blocks = [block.splitlines() for block in HELP.read_text(encoding="utf-8").strip().split("\n\n")]
    title, usage, *rest = blocks
    assert title[0].startswith("mailroom: ") and usage[0] == "Usage:", "help.txt has another beginning"
    commands = ("send", "check", "receive", "report", "serve")
    parts = {part: [] for part in (*commands, "common", "signals")}
    codes = {}
    part = None
    for block in rest:
        if match := re.match(r"mailroom (send|check|receive|report|serve) ", block[0]):
            part = match[1]
        elif block[0].lstrip().startswith("-h, --help"):
            part = "common"
        elif block[0] == "Signals:":
            parts["signals"].append(block[1:])
            continue
        elif match := re.match(r"Exit codes of mailroom (\w+):", block[0]):
            codes[match[1]] = block[1:]
            continue
        elif block[0].startswith("With NOTIFY_SOCKET"):
            parts["signals"].append(block)
            continue
        parts[part].append(block)
    # What all take stands with the first.
    shared = [line for block in parts["send"] for line in block]
    at = {name: next(i for i, line in enumerate(shared) if line.strip().startswith(name)) for name in ("-d,", "-t,", "--once", "--log-format")}
    all_take = shared[at["-d,"]:at["--once"]]
    usages = {name: [line.strip() for line in usage[1:] if f"mailroom {name}" in line] for name in commands}
    options, signals = ("OPTIONS AND CONNECTIONS", parts["common"]), ("SIGNALS", parts["signals"])
    all_codes = [block for name in commands for block in ([f"mailroom {name}:"], codes[name])]
    texts = {
        "mailroom": [block for name in commands for block in parts[name]],
        "mailroom-send": parts["send"],
        "mailroom-check": parts["check"] + [all_take],
        "mailroom-receive": parts["receive"] + [all_take + shared[at["--log-format"]:]],
        "mailroom-report": parts["report"] + [shared[at["-d,"]:at["-t,"]]],
        # A URL has no user there.
        "mailroom-serve": parts["serve"]
        + [[line.replace("user@", "") for line in shared[at["-d,"]:at["-t,"]]] + shared[at["--log-format"]:]],
    }
    for page, text in texts.items():
        command = page.removeprefix("mailroom").lstrip("-")
        usage = usages[command] if command else sum(usages.values(), [])
        for option in re.findall(r"--[a-z-]+", " ".join(usage)):
            assert any(re.match(rf" +(-\w, )?{option} ", line) for block in text for line in block), f"{page}: {option} has no text"
        status = ("EXIT STATUS", [codes[command]] if command else all_codes)
        tail = [options, status] if command in ("check", "report") else [options, signals, status]
        yield page, usage, [("DESCRIPTION", text), *tail], [name for name in NAMES if name != page]


def main(folder, version, date):
    for name, usage, sections, others in pages():
        lines = [
            f'.TH {name.upper()} 1 "{date}" "mailroom {version}" "User Commands"',
            ".SH NAME", f"{name} \\- {NAMES[name]}",
            ".SH SYNOPSIS", ".nf", *map(escape, usage), ".fi",
        ]
        for title, blocks in sections:
            lines += [f".SH {title}", *render(blocks)]
        lines += [".SH SEE ALSO", ", ".join(f"\\fB{escape(other)}\\fR(1)" for other in others)]
        (pathlib.Path(folder) / f"{name}.1").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
