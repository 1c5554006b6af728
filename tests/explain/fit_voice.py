#!/usr/bin/env python3
"""The weights of src/explain/voice.c: how much each sign speaks for a report or against it.

    fit_voice.py SIGNS FOLDER ...                  fits them and prints the table in C
    fit_voice.py SIGNS FOLDER ... --write          puts the table into src/explain/voice.c
    fit_voice.py --excerpts FOLDER REPOSITORY ...  makes a collection out of git repositories: lines around words of failures in
                                                   their sources and documents, none of which is a failure

SIGNS is the program explain_signs of a build (tests/explain/signs.c), a FOLDER a collection of texts with labels (collection.py). To
these come the project's own cases, tests/explain/cases, and what is made out of them: messages set into source and documents, where
they are none, and into logs and threads, where they stay failures.

The fit is a logistic regression. A text is a report where the best of its places is, so what counts is a soft maximum of its places. A
sign that speaks for a report may not count against it, nor the other way round; a few may do either. What is a report whatever the
weights are is left out, as is a text without any place. Four-fold cross-validation says what the table is worth on texts that it was not
fitted to. Needs NumPy."""
import argparse
import os
import random
import re
import subprocess
import sys
import tempfile

import numpy

import collection

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CASES = os.path.join(ROOT, "tests/explain/cases")
TABLE = os.path.join(ROOT, "src/explain/voice.c")
FOR = set("FIGURE LEVEL DATED OPENS LABELLED FIELD PLACE STACK CODE ALONE LAST TOLD ENDED CONCRETE FENCED MINE".split())
EITHER = set("GENERAL NAME KILL TAIL DATED TITLE".split())
WEIGHTS = {"case": 6.0, "collection": 2.0, "source": 0.7, "document": 0.5, "log": 0.5}
EXCERPT_WEIGHT = 0.35 / WEIGHTS["collection"]
WORDS = (r"out of memory|out-of-memory|OutOfMemory|\bOOM\b|bad_alloc|cannot allocate|failed to allocate|unable to allocate|MemoryError|"
         r"insufficient memory|not enough memory|memory limit|exit code 137|SIGKILL|oom_kill|ENOMEM|RESOURCE_EXHAUSTED|alloc.*failed|"
         r"ALLOC_FAILED|heap space|memory exhausted|OOMKilled")


def escaped(text):
    return text.replace("\\", "\\\\").replace('"', '\\"')


def in_source(words):
    """The words as programs hold them."""
    text = escaped(words)
    return [f'        raise RuntimeError("{text}")\n',
            f'    if "{text}" in str(e):\n        return True\n',
            f'    assert classify("{text}") == "oom"\n',
            f'MARKERS = [\n    "{text}",\n    "timeout",\n]\n',
            f'  if (!p) {{\n    fprintf(stderr, "{text}\\n");\n    exit(1);\n  }}\n',
            f'    case E_MEM: return "{text}";\n',
            f'        log = """\n{words}\n"""\n        self.assertTrue(parse(log))\n',
            f'  throw std::runtime_error("{text}");\n']


def in_documents(words):
    """The words as documents speak of them."""
    return [f"If you see `{words}`, reduce the batch size.\n",
            f"| `{words}` | batch too large | lower it |\n| x | y | z |\n",
            f"- `{words}`: use a smaller model\n",
            f"### {words}\n\nTry the following steps.\n",
            f"This may lead to {words} on small cards.\n",
            f"* Fix {words} in the loader (#123)\n",
            f'What does "{words}" mean?\n',
            f"The function returns an error when {words}.\n"]


def in_logs(message):
    """The message as logs and threads report it."""
    return [f"2024-05-01 10:11:12,345 ERROR [worker.py:88] {message}\n",
            f"> {message}\n",
            f"I get the following error:\n\n```\n{message}\n```\n\nWhat can I do?\n",
            f"Here is the log\n```\nloading model\n{message}\nexit\n```\n",
            f"[rank1]: {message}\n",
            f"E       {message}\n",
            f"**Error message:** {message}\n**Version:** 1.2\n",
            f"Exception Type: RuntimeError\nException Message: {message}\n",
            f'It crashed after an hour with "{message}"\n',
            f'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    x()\n{message}\n']


def own_examples(chance):
    """The project's cases and what is made out of them: (text, failure, weight, origin)."""
    cases = []
    for name in sorted(os.listdir(CASES)):
        if name.endswith(".txt"):
            cases += collection.read_cases(os.path.join(CASES, name))
    examples = [(text, failure, WEIGHTS["case"], "case") for text, failure in cases]
    messages = [text.strip() for text, failure in cases if failure and "\n" not in text.strip() and len(text) < 220]
    for message in chance.sample(messages, min(170, len(messages))):
        words = re.sub(r"^.*?(?:Error|Exception): ", "", message)
        words = words if len(words) > 8 else message
        source = chance.choice(in_source(words))
        if chance.random() < 0.5:
            source = "Use it like this:\n\n```" + chance.choice(["python", "cpp", "js", "go", "rust", ""]) + "\n" + source + "```\n"
        examples.append((source, False, WEIGHTS["source"], "source"))
        if not re.search(r"\d", words):
            examples.append((chance.choice(in_documents(words)), False, WEIGHTS["document"], "document"))
        examples.append((chance.choice(in_logs(message)), True, WEIGHTS["log"], "log"))
    return examples


def collected(folders):
    examples = []
    for folder in folders:
        for row in collection.read(folder):
            with open(row["path"], encoding="utf-8", errors="surrogateescape") as text:
                examples.append((text.read(), row["failure"], WEIGHTS["collection"] * row.get("weight", 1), folder))
    return examples


class Fit:
    """The examples as sets of signs, and the weights that tell them apart."""

    def __init__(self, program, examples):
        self.names = subprocess.run([program, "--names"], capture_output=True, text=True, check=True).stdout.split()
        self.places, self.truth, self.weight, self.text = [], [], [], []
        self.certain = {True: 0, False: 0}
        self.silent = 0
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for number, example in enumerate(examples):
                paths.append(os.path.join(folder, f"{number}.txt"))
                with open(paths[-1], "w", encoding="utf-8", errors="surrogateescape") as file:
                    file.write(example[0])
            answer = subprocess.run([program], input="\n".join(paths) + "\n", capture_output=True, text=True, check=True).stdout
        for line, (text, failure, weight, origin) in zip(answer.splitlines(), examples, strict=True):
            heard, *signs = line.split()
            if heard == "+":
                self.certain[failure] += 1
                if not failure:
                    print(f"an alarm whatever the weights are ({origin}): {text[:160]!r}", file=sys.stderr)
                if failure:
                    continue
            if not signs:
                self.silent += failure
                continue
            self.places.append(numpy.array([[int(sign, 16) >> bit & 1 for bit in range(len(self.names))] for sign in signs], float))
            self.truth.append(failure)
            self.weight.append(weight)
            self.text.append((origin, text))

    def fit(self, chosen, penalty, steps):
        """Weights of the signs and, last, the bias, by Adam on the chosen examples."""
        count = len(self.names)
        rows = numpy.vstack([numpy.hstack([self.places[i], numpy.ones((len(self.places[i]), 1))]) for i in chosen])
        lengths = [len(self.places[i]) for i in chosen]
        owner = numpy.repeat(numpy.arange(len(chosen)), lengths)
        start = numpy.cumsum([0] + lengths)[:-1]
        truth = numpy.array([self.truth[i] for i in chosen], float)
        weight = numpy.array([self.weight[i] for i in chosen])
        w, mean, square = numpy.zeros(count + 1), numpy.zeros(count + 1), numpy.zeros(count + 1)
        least = numpy.array([0.0 if name in FOR and name not in EITHER else -numpy.inf for name in self.names] + [-numpy.inf])
        most = numpy.array([numpy.inf if name in FOR or name in EITHER else 0.0 for name in self.names] + [numpy.inf])
        for step in range(1, steps + 1):
            score = rows @ w
            top = numpy.maximum.reduceat(score, start)
            share = numpy.exp(2 * (score - top[owner]))
            total = numpy.add.reduceat(share, start)
            chance = 1 / (1 + numpy.exp(-(top + numpy.log(total) / 2)))
            error = (chance - truth) * weight
            gradient = rows.T @ (error[owner] * share / total[owner]) / weight.sum() + penalty * numpy.r_[w[:count], 0]
            mean = 0.9 * mean + 0.1 * gradient
            square = 0.999 * square + 0.001 * gradient**2
            w -= 0.05 * (mean / (1 - 0.9**step)) / (numpy.sqrt(square / (1 - 0.999**step)) + 1e-8)
            w = numpy.clip(w, least, most)
        return w

    def count(self, w, chosen):
        """(missed, right) of the failures, (right, alarms) of the others, and which were wrong."""
        table, wrong = {(truth, said): 0 for truth in (True, False) for said in (True, False)}, []
        for i in chosen:
            said = bool((self.places[i] @ w[:-1] + w[-1]).max() > 0)
            table[self.truth[i], said] += 1
            if said != self.truth[i]:
                wrong.append(i)
        return table, wrong


def validate(fit, chance):
    order = list(range(len(fit.places)))
    chance.shuffle(order)
    total = {}
    for fold in range(4):
        w = fit.fit([i for k, i in enumerate(order) if k % 4 != fold], 3e-4, 500)
        for key, count in fit.count(w, order[fold::4])[0].items():
            total[key] = total.get(key, 0) + count
    return total


def table_of(fit, w):
    cells = [f"[HRI_SIGN_{name}] = {round(10 * value)}" for name, value in zip(fit.names, w[:-1], strict=True)]
    return (f"enum {{ BIAS = {round(10 * w[-1])} }}; /* without any sign: the words stand by themselves */\n"
            "static const int weights[HRI_SIGN_COUNT] = {" + ", ".join(cells) + "};\n")


def write_table(table):
    with open(TABLE, encoding="utf-8") as file:
        source = file.read()
    begin, end = "enum { BIAS", "};\n\n"
    at = source.index(begin)
    with open(TABLE, "w", encoding="utf-8") as file:
        file.write(source[:at] + table + source[source.index(end, at) + 3:])
    print(f"wrote {os.path.relpath(TABLE)}; lay it out with scripts/format.sh", file=sys.stderr)


def make_excerpts(folder, repositories, chance):
    """Excerpts of up to 17 lines around such words; sources and documents report no failure."""
    os.makedirs(folder, exist_ok=True)
    count = 0
    with open(folder.rstrip("/") + ".labels.jsonl", "w", encoding="utf-8") as labels:
        for repository in repositories:
            git = ["git", "-C", repository]
            found = subprocess.run(git + ["grep", "-n", "-I", "-i", "-E", WORDS, "HEAD"], capture_output=True, text=True, errors="replace",
                                   check=False).stdout
            lines = {}
            for line in found.splitlines():
                match = re.match(r"HEAD:([^:]+):(\d+):(.*)", line)
                if match and len(match[3]) < 600:
                    lines.setdefault(match[1], []).append(int(match[2]))
            files = sorted(lines)
            chance.shuffle(files)
            documents = [name for name in files if re.search(r"\.(md|rst|txt|adoc)$", name)]
            for name in documents[:60] + files[:90]:
                text = subprocess.run(git + ["show", "HEAD:" + name], capture_output=True, text=True, errors="replace", check=False).stdout
                text = text.split("\n")
                for number in chance.sample(lines[name], min(2, len(lines[name]))):
                    reach = chance.choice([0, 1, 2, 3, 5, 8])
                    count += 1
                    with open(os.path.join(folder, f"{count:05}.txt"), "w", encoding="utf-8", errors="replace") as file:
                        file.write("\n".join(text[max(0, number - 1 - reach):number + reach]) + "\n")
                    labels.write(f'{{"file": "{count:05}.txt", "failure": false, "weight": {EXCERPT_WEIGHT}}}\n')
    print(f"{count} excerpts in {folder}: take out by hand what reports a failure (a log that a document quotes)", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", metavar="SIGNS FOLDER", nargs="+")
    parser.add_argument("--excerpts", metavar="FOLDER")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--wrong", action="store_true", help="show the texts that the table has wrong")
    options = parser.parse_args()
    chance = random.Random(3)
    if options.excerpts:
        make_excerpts(options.excerpts, options.paths, chance)
        return
    fit = Fit(options.paths[0], own_examples(chance) + collected(options.paths[1:]))
    print(f"{len(fit.places)} texts weighed; failures whatever the weights are: {fit.certain[True]}, without a place: {fit.silent}",
          file=sys.stderr)
    total = validate(fit, chance)
    print(f"four-fold: failures {total[True, True]} right, {total[True, False]} missed; others {total[False, False]} right, "
          f"{total[False, True]} alarms", file=sys.stderr)
    w = fit.fit(list(range(len(fit.places))), 3e-4, 2000)
    result, wrong = fit.count(w, range(len(fit.places)))
    print(f"all: failures {result[True, True]} right, {result[True, False]} missed; others {result[False, False]} right, "
          f"{result[False, True]} alarms", file=sys.stderr)
    for i in wrong if options.wrong else []:
        scores = fit.places[i] @ w[:-1] + w[-1]
        best = fit.places[i][scores.argmax()]
        print(f"===== {fit.text[i][0]}: {'missed' if fit.truth[i] else 'alarm'} {scores.max():.1f} "
              f"{[name for name, bit in zip(fit.names, best, strict=True) if bit]}\n{fit.text[i][1][:420]}", file=sys.stderr)
    table = table_of(fit, w)
    if options.write:
        write_table(table)
    else:
        print(table, end="")


if __name__ == "__main__":
    main()
