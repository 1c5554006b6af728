"""Compares what inspect (text, JSON), explain (text, JSON), the page and the exports say of one snapshot.

    same.py HEADROOM WORK SNAPSHOT...

Each figure is read from each place where it stands; whoever differs is named, and the exit code is 1.
"""
import base64, csv, gzip, html, json, os, re, subprocess, sys

program, work, snapshots = sys.argv[1], sys.argv[2], sys.argv[3:]
failures = 0


def expect(snapshot, what, **found):
    """All the values are the same."""
    global failures
    if len({json.dumps(value, sort_keys=True) for value in found.values()}) == 1:
        return
    failures += 1
    print(f"{snapshot}: {what}: " + ", ".join(f"{place} {value}" for place, value in found.items()))


def run(*arguments):
    result = subprocess.run([program, *arguments], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"headroom {' '.join(arguments)}: {result.stderr}")
    return result.stdout


def size(value):
    """As every report prints it: C's rounding of the quotient to two decimals."""
    units, unit, number = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"], 0, float(value)
    while number >= 1023.995 and unit + 1 < len(units):
        number, unit = number / 1024, unit + 1
    return f"{value} B" if unit == 0 else f"{number:.2f} {units[unit]}"


def plain(text):
    return re.sub(r"\s+", " ", text)


class Page:
    def __init__(self, path):
        text = open(path, encoding="utf-8").read()
        data = gzip.decompress(base64.b64decode(re.search(r'id="data">([^<]*)<', text)[1]))
        length, shift, at = 0, 0, 0
        while True:
            length |= (data[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if data[at - 1] < 128:
                break
        self.facts = json.loads(data[at:at + length])
        self.verdict = html.unescape(re.search(r'class="verdict">([^<]*)<', text)[1])
        notes = re.search(r'<div class="notes">(.*?)</div>', text, re.S)[1]
        self.notes = [html.unescape(note) for note in re.findall(r"<li>([^<]*)", notes)]
        self.proofs = [html.unescape(note) for note in re.findall(r"<small>([^<]*)", notes)]
        self.titles = [html.unescape(title) for title in re.findall(r"<h3>([^<]*)", notes)]


PARTS = ["requested_bytes", "rounding_bytes", "pending_bytes", "free_pinned_bytes", "free_returnable_bytes"]
# The headline of inspect, and the causes that explain may find then.
HEADLINES = {
    "A FREE BLOCK OF": {"unknown", "fragmented", "cap", "cached_not_returned"},
    "NOT THE DEVICE: it has the [^;]*; most likely a limit": {"cap"},
    "NOT THE DEVICE: it has the [^;]*; what refused it": {"unknown"},
    "CACHED MEMORY": {"cached_not_returned"},
    "PRIVATE POOLS": {"private_pool"},
    "HELD ELSEWHERE": {"unknown"},
    "GROWTH": {"growth"},
    "TOO BIG": {"too_big", "outlier_batch"},
    "NEARLY FULL": {"too_big", "outlier_batch"},
    "FRAGMENTED": {"fragmented", "outlier_batch"},
}


def compare_instant(name, d, e, page, text, said):
    """The instant, where its bytes are, and their names."""
    at, facts, shares = d["at"], page.facts, {share["name"]: share["bytes"] for share in e["shares"]}
    expect(name, "event", inspect=d["at_event"], explain=e["event"], page=facts["atEvent"])
    expect(name, "reserved", inspect=at["reserved_bytes"], page=facts["atReserved"], parts=sum(at[part] for part in PARTS),
           explain=e["figures"]["reserved_bytes"]["bytes"])
    expect(name, "parts", inspect=[at[part] for part in PARTS], page=facts["sums"],
           explain=[shares.get(part, 0) for part in facts["parts"]])
    for part, key in zip(facts["parts"], PARTS):
        if not at[key]:
            continue
        for place, words in (("inspect", text), ("explain", said)):
            expect(name, f"{part} in {place}'s text", text=[plain(line) for line in words.splitlines() if line.startswith(f"  {part} ")
                                                          and size(at[key]) in plain(line)] != [], wanted=True)
    if at["private_pool_bytes"]:
        expect(name, "private pools", inspect=at["private_pool_bytes"], explain=e["figures"]["private_pools_bytes"]["bytes"],
               page=facts["privatePools"], text=f"in private pools {size(at['private_pool_bytes'])}" in text and at["private_pool_bytes"])
        expect(name, "free in private pools", inspect=at["private_pool_free_bytes"], page=facts["privateFree"])
    instant = "before the first event" if d["at_event"] is None else f"after event {d['at_event'] + 1}"
    expect(name, "event in words", text=d["oom_count"] > 0 or instant in text, explain=instant in said, wanted=True)
    expect(name, "versions", json=d["versions"], page=facts["format"], text=d["versions"] if d["versions"] in text else None)


def compare_trace(name, d, page, text):
    """Peaks, categories, steps, growth, failures."""
    facts, at = page.facts, d["at"]
    expect(name, "peak", inspect=d["peak_live_bytes"], page=facts["peakLive"])
    expect(name, "peak reserved", inspect=d["peak_reserved_bytes"], page=facts["peakReserved"])
    expect(name, "peak event", inspect=d["peak_event"], page=None if facts["peakEvent"] < 0 else facts["peakEvent"])
    if d["at_event"] == d["peak_event"]:
        expect(name, "live at the peak", sums=at["requested_bytes"], peak=d["peak_live_bytes"])
    for by in ("by_category", "by_stack", "by_size"):
        expect(name, by, rows=sum(row["bytes"] for row in d[by]), live=at["requested_bytes"])
    expect(name, "categories inferred", inspect=d["categories_inferred"], page=facts["categoriesInferred"])
    expect(name, "steps", inspect=[[s["first_event"], s["event_count"], s["peak_live_bytes"], s["end_live_bytes"]] for s in d["steps"]],
           page=facts["steps"])
    words = {"leak": "leak", "settled": "settled", "once": "one-off", "larger": "larger", "graph": "kept graph", "outputs": "kept outputs", "cache": "cache"}
    expect(name, "growth",
           inspect=[[words[g["kind"]], g["bytes"], g["count"], int(g["bytes_per_step"]), g["steps_grown"], g["category"]] for g in d["growth"]],
           page=[[g["kind"], g["bytes"], g["count"], g["perStep"], g["grown"], facts["categories"][g["category"]]] for g in facts["growth"]])
    for g in d["growth"]:
        line = [row for row in text.splitlines() if row.startswith(f"  {size(g['bytes']):>10} {g['count']:>6} x  {words[g['kind']]}")]
        expect(name, f"growth of {g['bytes']} in words", text=line != [], wanted=True)
    expect(name, "failures", inspect=[[o["event"], o["request_bytes"], o["device_free_bytes"], o["live_bytes"], o["reserved_bytes"], o["stage"]]
                                      for o in d["ooms"]],
           page=[[o["event"], o["size"], o["deviceFree"], o["live"], o["reserved"], o["stage"]] for o in facts["ooms"]])
    for oom in d["ooms"]:
        if oom["event"] == d["at_event"]:
            expect(name, "live at the failure", failure=oom["live_bytes"], sums=at["requested_bytes"])
            expect(name, "reserved at the failure", failure=oom["reserved_bytes"], sums=at["reserved_bytes"])


def compare_words(name, d, e, page, text, said):
    """The verdict, its arithmetic and the advice; the headline."""
    cause = f"{e['cause']}, {e['certainty']}: {e['verdict']}" if e["cause"] != "unknown" else f"Undecidable: {e['verdict']}"
    expect(name, "verdict", explain=cause, page=page.verdict)
    expect(name, "why and advice", explain=e["arithmetic"] + [advice["text"] for advice in e["advice"]], page=page.notes)
    expect(name, "proofs", explain=[advice["proof"] for advice in e["advice"] if advice.get("proof")], page=page.proofs)
    expect(name, "verdict in explain's text", text=plain(e["verdict"]) in plain(said), wanted=True)
    for line in e["arithmetic"] + [advice["text"] for advice in e["advice"]]:
        expect(name, "a line of explain's text", text=plain(line) in plain(said), wanted=True)
    expect(name, "a title", text=[title for title in page.titles if title not in said], wanted=[])
    if d["oom_count"]:
        f, last = d["fragmentation"], d["ooms"][-1]
        expect(name, "request", inspect=f["request_bytes"], failure=last["request_bytes"], explain=e["figures"]["requested_bytes"]["bytes"])
        expect(name, "device free", inspect=last["device_free_bytes"], explain=e["figures"]["free_bytes"]["bytes"])
        headline = [word for word in HEADLINES if re.match(word, text.splitlines()[1])]
        fits = len(headline) == 1 and e["cause"] in HEADLINES[headline[0]]
        if headline == ["NEARLY FULL"] and e["cause"] == "fragmented":  # what inspect cannot know: replay carries the rest of the step
            fits = e["certainty"] == "likely" and any(advice["basis"] in ("proven", "replayed") for advice in e["advice"])
        expect(name, f"headline '{text.splitlines()[1]}' beside {e['cause']}", fits=fits, wanted=True)
    grows = [g["bytes"] for g in d["growth"] if g["kind"] not in ("settled", "once")]
    if grows:
        expect(name, "growth in the headline", text=f"{size(sum(grows))} outlive their" in text, wanted=True)
        if e["cause"] == "growth":
            expect(name, "growth in explain", text=size(sum(grows)) in said, wanted=True)
    else:
        expect(name, "no growth in the headline", text="GROWS" in text, explain=e["cause"] == "growth", wanted=False)


def compare_exports(name, d, stem):
    at = d["at"]
    rows = list(csv.DictReader(open(f"{stem}.csv", newline="")))
    by_category = {row["category"]: row["bytes"] for row in d["by_category"]}
    expect(name, "events", inspect=d["event_count"], csv=len(rows))
    if d["at_event"] is not None and rows:
        row = rows[d["at_event"]]
        expect(name, "the row of the instant", csv=[int(row["event"]), int(row["live_bytes"]), int(row["reserved_bytes"])],
               inspect=[d["at_event"], at["requested_bytes"], at["reserved_bytes"]])
        expect(name, "peaks by row", csv=[max(int(r["live_bytes"]) for r in rows), max(int(r["reserved_bytes"]) for r in rows)],
               inspect=[d["peak_live_bytes"], d["peak_reserved_bytes"]])
    if d["began_empty"] and rows:  # what is live by category, from allocations and frees alone
        live = {}
        for row in rows[:d["at_event"] + 1]:
            if row["action"] in ("alloc", "free_requested"):
                live[row["category"]] = live.get(row["category"], 0) + int(row["size_bytes"]) * (1 if row["action"] == "alloc" else -1)
        expect(name, "categories by row", csv={k: v for k, v in live.items() if v}, inspect=by_category)
    flame = {}
    for line in open(f"{stem}.collapsed"):
        stack, bytes_ = line.rsplit(" ", 1)
        category = stack.split(";")[0]
        flame[category] = flame.get(category, 0) + int(bytes_)
    expect(name, "flame graph", collapsed=flame, inspect=by_category)
    scope = json.load(open(f"{stem}.speedscope"))
    expect(name, "speedscope", speedscope=[sum(scope["profiles"][0]["weights"]), scope["profiles"][0]["endValue"]],
           inspect=[at["requested_bytes"]] * 2)
    levels, counters, failed = {}, {}, []
    for record in json.load(open(f"{stem}.chrome"))["traceEvents"]:
        args, kind = record.get("args", {}), record["name"]
        if kind in ("[memory]", "[OutOfMemory]"):
            levels[args["Ev Idx"]] = (args["Total Allocated"], args["Total Reserved"])
        if kind == "[OutOfMemory]":
            failed.append([args["Ev Idx"], args["Bytes"]])
        if record["ph"] == "C" and record.get("cat") == "memory" and kind != "memory":
            counters.setdefault(kind, []).append(args["bytes"])
    if d["at_event"] in levels:
        expect(name, "chrome at the instant", chrome=levels[d["at_event"]], inspect=(at["requested_bytes"], at["reserved_bytes"]))
    expect(name, "chrome's failures", chrome=failed, inspect=[[o["event"], o["request_bytes"]] for o in d["ooms"]])
    if levels:
        expect(name, "chrome's peak", chrome=max(level[0] for level in levels.values()), inspect=d["peak_live_bytes"])
    expect(name, "chrome's categories", unknown=[c for c in by_category if c not in counters], wanted=[])


def compare(snapshot):
    name = "/".join(snapshot.split("/")[-2:])
    stem = os.path.join(work, name.replace("/", "-"))
    text = run("inspect", snapshot, "--html", f"{stem}.html", "--export", "csv", f"{stem}.csv", "--top", "1000000")
    for form in ("collapsed", "speedscope", "chrome"):
        run("inspect", snapshot, "--export", form, f"{stem}.{form}", "--top", "1")
    inspected = run("inspect", snapshot, "--json", "--top", "1000000")
    d, said = json.loads(inspected), run("explain", snapshot)
    e = json.loads(run("explain", snapshot, "--json"))["failures"][0]
    page = Page(f"{stem}.html")
    compare_instant(name, d, e, page, text, said)
    compare_trace(name, d, page, text)
    compare_words(name, d, e, page, text, said)
    compare_exports(name, d, stem)


for snapshot in snapshots:
    compare(snapshot)
print(f"{len(snapshots)} snapshots, {failures} differences")
sys.exit(failures > 0)
