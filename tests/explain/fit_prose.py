#!/usr/bin/env python3
"""The weights of src/explain/prose_words.c: how much each word of a sentence, by where it stands, each word of the text on both sides, and
each sign speak for a failure that is told of.

    fit_prose.py SIGNS FOLDER ...                  four-fold cross-validation
    fit_prose.py SIGNS FOLDER ... --write          fits all, and writes src/explain/prose_words.c
    fit_prose.py SIGNS FOLDER ... --test FOLDER    fits without these folders and counts on them

SIGNS is the program explain_signs of a build (tests/explain/signs.c), a FOLDER a collection of texts with labels (collection.py); to these
come the project's own cases, tests/explain/cases. Only places with keys are weighed here: sentences (hri_prose_is_sentence), and lines around
which the text counts (hri_prose_is_on_page), whose signs weigh what voice.c says. What is heard in another way is counted as it is.

The fit is a logistic regression with a quadratic penalty. A text tells of a failure where the best of its places does: of a failure's
places the one that weighs most is fitted, chosen anew in each of some rounds, of other texts all are. Keys that fewer than LEAST texts
hold are left out, and so are weights below SMALL: of those that remain each is read as what it says. Needs NumPy."""
import argparse
import collections
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
TABLE = os.path.join(ROOT, "src/explain/prose_words.c")
VOICE = os.path.join(ROOT, "src/explain/voice.c")
LEAST, SMALL, SCALE = 5, 1, 10  # texts, and tenths
PENALTY, ROUNDS = 3.0, 4
RATE = 0.05  # of a step: there are many keys a place, and they come together
PAGE_PENALTY = 12.0  # of a word of the text around: it says less than where a word stands in its sentence
CASE = 5.0  # what a case counts for: the least that must stay right
# tenths that the text around may take from a line, and from one with nothing beside the message (prose.c, most_of_page)
MOST, MOST_ALONE = 30, 12
BESIDE = {"PROSE", "TAIL", "TITLE", "HEADING", "COMMENT", "QUOTED", "TICKED", "GENERAL"}
MARGIN = 5  # what a sentence must weigh more than evens, in tenths: alarms cost more than what is missed


class Texts:
    """Labelled texts with their places: of each the signs, and the keys of a sentence."""

    def __init__(self, program):
        self.program = program
        self.names = subprocess.run([program, "--names"], capture_output=True, text=True, check=True).stdout.split()
        self.failure, self.weight, self.origin, self.path = [], [], [], []
        # of each text: its places as (None for a sentence, or what the text around may take from a line; what the signs of a line
        # weigh; keys); whether it is heard without them
        self.places, self.heard = [], []
        with open(VOICE, encoding="utf-8") as file:
            source = file.read()
        self.bias = int(re.search(r"BIAS = (-?\d+)", source)[1])
        self.voice = {name: int(value) for name, value in re.findall(r"\[HRI_SIGN_(\w+)\] = (-?\d+)", source)}

    def names_of(self, signs):
        return [name for bit, name in enumerate(self.names) if signs >> bit & 1]

    def add(self, rows):
        """Rows (path, failure, weight, origin)."""
        paths = "".join(row[0] + "\n" for row in rows)
        answer = subprocess.run([self.program, "--keys"], input=paths.encode(), capture_output=True, check=True).stdout
        places = []
        rows = iter(rows)
        for line in answer.decode("utf-8", "replace").split("\n"):
            fields = line.split("\t")
            if fields[0] in ("line", "sentence"):
                places.append(fields)
            elif line:
                path, failure, weight, origin = next(rows)
                self.path.append(path)
                self.failure.append(failure)
                self.weight.append(weight)
                self.origin.append(origin)
                signs = [int(place[1], 16) for place in places]
                line_weights = [self.bias + sum(self.voice.get(name, 0) for name in self.names_of(sign)) for sign in signs]
                self.heard.append(line[0] == "+" or any(
                    weight > 0 for weight, place in zip(line_weights, places, strict=True) if place[0] == "line" and len(place) == 2))
                self.places.append([
                    (None if place[0] == "sentence" else MOST if BESIDE.intersection(self.names_of(sign)) else MOST_ALONE,
                     0.0 if place[0] == "sentence" else weight / SCALE,
                     set(place[2:]) | ({"S " + name for name in self.names_of(sign)} if place[0] == "sentence" else set()))
                    for sign, weight, place in zip(signs, line_weights, places, strict=True)
                    if place[0] == "sentence" or len(place) > 2])
                places = []


class Model:
    """Weights of keys, fitted to some of the texts."""

    def __init__(self, texts, chosen):
        count = collections.Counter(key for i in chosen for key in set().union(*(keys for _, _, keys in texts.places[i])))
        keys = {key: number for number, key in enumerate(sorted(key for key, texts_with in count.items() if texts_with >= LEAST))}
        column, row, owner, sentence, base = [], [], [], [], []
        for i in chosen:
            for most, weight, of_place in texts.places[i]:
                for key in sorted(of_place):  # sums come out alike each time
                    if key in keys:
                        column.append(keys[key])
                        row.append(len(owner))
                owner.append(i)
                sentence.append(most is None)
                base.append(weight)
        self.keys, self.count = keys, len(keys)
        self.penalty = numpy.array([PAGE_PENALTY if key.startswith("w ") else PENALTY for key in keys])
        row, column, owner = numpy.array(row, int), numpy.array(column, int), numpy.array(owner, int)
        self.sentence, self.base = numpy.array(sentence, float), numpy.array(base)
        truth = numpy.array([texts.failure[i] for i in owner], float)
        share = numpy.array([texts.weight[i] / len(texts.places[i]) ** 0.5 for i in owner])
        active = numpy.ones(len(owner))
        self.w, self.b = numpy.zeros(len(keys)), 0.0
        for _ in range(ROUNDS):
            self.descend(row, column, truth, share * active)
            score = numpy.bincount(row, self.w[column], len(owner)) + self.b * self.sentence + self.base
            best = {}
            for place, i in enumerate(owner):
                if truth[place] and (i not in best or score[place] > score[best[i]]):
                    best[i] = place
            active = 1 - truth
            active[list(best.values())] = 1

    def descend(self, row, column, truth, weight, steps=300):
        """Gradient descent with Nesterov's momentum from where the weights are."""
        rate = 4.0 / (numpy.bincount(column, weight[row], self.count) + self.penalty)  # each key its own
        rate_b = 4.0 / (weight.sum() + 1)
        w, b, old_w, old_b = self.w.copy(), self.b, self.w, self.b
        for step in range(steps):
            momentum = step / (step + 3)
            ahead, ahead_b = w + momentum * (w - old_w), b + momentum * (b - old_b)
            score = numpy.bincount(row, ahead[column], len(truth)) + ahead_b * self.sentence + self.base
            wrong = weight * (1 / (1 + numpy.exp(-numpy.clip(score, -30, 30))) - truth)
            slope = numpy.bincount(column, wrong[row], self.count) + self.penalty * ahead
            old_w, old_b = w, b
            w, b = ahead - rate * slope * RATE, ahead_b - rate_b * (wrong * self.sentence).sum() * RATE
        self.w, self.b = w, b

    def table(self):
        """Weights in tenths, those that say something; and the bias."""
        return ({key: round(SCALE * self.w[number]) for key, number in self.keys.items() if abs(round(SCALE * self.w[number])) > SMALL},
                round(SCALE * self.b) - MARGIN)


def tells(texts, i, table, bias):
    for most, weight, keys in texts.places[i]:
        words = sum(table.get(key, 0) for key in keys)
        if (bias + words if most is None else round(SCALE * weight) + max(words, -most)) > 0:
            return True
    return texts.heard[i]


def count(texts, chosen, table, bias, result, wrong):
    for i in chosen:
        told = tells(texts, i, table, bias)
        result[texts.origin[i]][texts.failure[i], told] += 1
        if told != texts.failure[i]:
            wrong.append(i)


def show(result):
    for origin, sums in sorted(result.items()):
        print(f"{origin:28} failures {sums[True, True]} of {sums[True, True] + sums[True, False]}, "
              f"alarms {sums[False, True]} of {sums[False, True] + sums[False, False]}")


def write(texts, model):
    table, bias = model.table()
    words = sorted(key for key in table if not key.startswith("S "))
    signs = [name for name in texts.names if "S " + name in table]

    def quoted(key):
        out, hexed = "", False
        for byte in key.encode():
            if byte < 0x80:
                char = chr(byte)
                out += '""' if hexed and char in "0123456789abcdefABCDEF" else ""
                out += "\\" + char if char in '"\\' else "?" if False else char
                hexed = False
            else:
                out += f"\\x{byte:02x}"
                hexed = True
        return out.replace("??", '?""?')

    with open(TABLE, "w", encoding="utf-8") as file:
        file.write("/* What words say in a sentence that names a failure (prose.h), in tenths: of a logistic regression's weights. Made by\n"
                   " * tests/explain/fit_prose.py, which says how; not by hand. */\n#include \"explain/prose.h\"\n\n"
                   f"const int hri_prose_bias = {bias};\n"
                   "const int hri_prose_signs[HRI_SIGN_COUNT] = {"
                   + ", ".join(f"[HRI_SIGN_{name}] = {table['S ' + name]}" for name in signs) + "};\n"
                   "const hri_prose_word hri_prose_words[] = {\n"
                   + "".join(f'{{"{quoted(key)}", {table[key]}}},\n' for key in words)
                   + "};\nconst size_t hri_prose_word_count = sizeof hri_prose_words / sizeof *hri_prose_words;\n")
    print(f"wrote {os.path.relpath(TABLE)}, {len(words)} words; lay it out with scripts/format.sh", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("signs", metavar="SIGNS")
    parser.add_argument("folders", metavar="FOLDER", nargs="+")
    parser.add_argument("--test", metavar="FOLDER", nargs="+", default=[])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--wrong", action="store_true", help="show the texts that are wrong")
    options = parser.parse_args()
    texts = Texts(options.signs)
    with tempfile.TemporaryDirectory() as folder:
        rows = []
        for name in sorted(os.listdir(CASES)):
            for text, failure in collection.read_cases(os.path.join(CASES, name)) if name.endswith(".txt") else []:
                path = os.path.join(folder, f"{len(rows)}.txt")
                with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
                    file.write(text)
                rows.append((path, failure, CASE, "cases"))
        texts.add(rows)
    for folder in options.folders + options.test:
        texts.add([(row["path"], row["failure"], row.get("weight", 1.0), folder) for row in collection.read(folder)])
    everything = range(len(texts.failure))
    fitted = [i for i in everything if texts.origin[i] not in options.test]
    result, wrong = collections.defaultdict(collections.Counter), []
    if options.test:
        count(texts, [i for i in everything if texts.origin[i] in options.test], *Model(texts, fitted).table(), result, wrong)
    elif not options.write:
        chance = random.Random(5)
        fold = [chance.randrange(4) for _ in everything]
        for k in range(4):
            count(texts, [i for i in fitted if fold[i] == k], *Model(texts, [i for i in fitted if fold[i] != k]).table(), result, wrong)
    if options.write:
        model = Model(texts, fitted)
        count(texts, fitted, *model.table(), result, wrong)
        write(texts, model)
    show(result)
    for i in wrong if options.wrong else []:
        if os.path.exists(texts.path[i]):
            with open(texts.path[i], encoding="utf-8", errors="replace") as file:
                print(f"===== {texts.path[i]}: {'missed' if texts.failure[i] else 'alarm'}\n{file.read()[:400]}")


if __name__ == "__main__":
    main()
