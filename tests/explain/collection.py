"""A collection: a folder of texts and beside it FOLDER.labels.jsonl, one object a line:

    {"file": "t001.txt", "failure": true, "cause": "host_memory", "certainty": "likely", "figures": {"requested": 1024}}

`file` is a name in the folder. Where `failure` is false the rest is null or left out. `weight` (1 unless given) is what the
text counts for in a fit. docs/explain.md says what a label means."""
import json
import os


def read(folder):
    """The labels of a folder, each with the `path` of its text."""
    folder = folder.rstrip("/")
    with open(folder + ".labels.jsonl", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    for number, row in enumerate(rows, 1):
        for field in ("file", "failure"):
            if field not in row:
                raise SystemExit(f"{folder}.labels.jsonl:{number}: the field \"{field}\" is missing: see tests/explain/collection.py")
        row["path"] = os.path.join(folder, row["file"])
        if not os.path.exists(row["path"]):
            raise SystemExit(f"{folder}.labels.jsonl:{number}: {row['path']} does not exist: \"file\" names a text in the folder")
    return rows


def read_cases(path):
    """The project's own cases: "%% CAUSE CERTAINTY [FIGURE=BYTES ...]" or "%% no", then the text. Pairs (text, whether it is a failure)."""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        blocks = file.read().split("\n%% ")[1:]
    return [(block.split("\n", 1)[1], block.split("\n", 1)[0].strip() != "no") for block in blocks]
