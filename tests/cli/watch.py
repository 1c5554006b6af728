"""Independent readers for tests/cli/test_watch.sh: of TensorBoard's event files, of Prometheus' text, and a terminal.

    watch.py events FILE METRICS.JSONL    every record's lengths and checksums, and its scalars against the metrics
    watch.py metrics FILE                 lines of the exposition format; prints name=value
    watch.py sealed FILE PROGRAM...       runs the program with --log-json on a copy of FILE that cannot get shorter
    watch.py terminal COLUMNS PROGRAM...  runs the program in a terminal of so many columns and prints what it showed
"""
import fcntl, json, math, os, pty, re, struct, subprocess, sys, termios

# The bit-reversed polynomial of Castagnoli, as a table: another way than the program's.
TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ 0x82F63B78 if byte & 1 else byte >> 1
    TABLE.append(byte)


def masked(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def fields(data):
    """The fields of a protocol buffer as (number, value)."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            value = varint()
        elif key & 7 == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif key & 7 == 5:
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        else:
            assert key & 7 == 2, f"kind {key & 7} in an event"
            length = varint()
            value, at = data[at:at + length], at + length
        yield key >> 3, value
    assert at == len(data), "an event ends inside of a field"


def events(path):
    data, at, found = open(path, "rb").read(), 0, []
    assert masked(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF
    while at < len(data):
        length, check = struct.unpack_from("<QI", data, at)
        assert check == masked(data[at:at + 8]), "the checksum of a length"
        body = data[at + 12:at + 12 + length]
        assert struct.unpack_from("<I", data, at + 12 + length)[0] == masked(body), "the checksum of an event"
        at += 16 + length
        event = dict(fields(body))
        scalars = {}
        for number, value in fields(event.get(5, b"")):
            one = dict(fields(value))
            scalars[one[1].decode()] = one[2]
        found.append((event.get(2, 0), event[1], event.get(3), scalars))
    return found


def check_events(path, metrics):
    found = events(path)
    assert found[0][2] == b"brain.Event:2" and not found[0][3], "the first record says the version"
    lines = [json.loads(line) for line in open(metrics)]
    assert len(found) - 1 == len(lines), f"{len(found) - 1} events of {len(lines)} lines"
    for (step, time, _, scalars), line in zip(found[1:], lines):
        assert step == line["step"] and time > 1e9
        names = {"train/loss": "loss", "train/grad_norm": "grad_norm", "train/learning_rate": "learning_rate",
                 "memory/process_resident_bytes": "process_resident_bytes", "eval/loss": "eval_loss"}
        for tag, name in names.items():
            assert (tag in scalars) == (line.get(name) is not None), f"{tag} in step {step}"
            if tag in scalars:
                assert math.isclose(scalars[tag], line[name], rel_tol=1e-6), f"{tag} is {scalars[tag]}, {name} {line[name]}"
    print(len(lines))


def check_metrics(path):
    typed = None
    for line in open(path):
        if line.startswith("# HELP "):
            continue
        if line.startswith("# TYPE "):
            typed = line.split()[2]
            assert line.split()[3] in ("gauge", "counter")
            continue
        match = re.fullmatch(r'([a-z_]+)\{run="((?:[^"\\\n]|\\["\\n])*)"\} (\S+)\n', line)
        assert match and match[1] == typed, f"no line of the format: {line!r}"
        print(f"{match[1]}={float(match[3]):g}")


def sealed(path, words):
    """A regular file whose ftruncate fails. Its end says what was done to the copy."""
    fd = os.memfd_create("log", os.MFD_ALLOW_SEALING)
    before = open(path, "rb").read()
    os.write(fd, before)
    fcntl.fcntl(fd, 1033, 2)  # F_ADD_SEALS, F_SEAL_SHRINK
    code = subprocess.run([*words, "--log-json", f"/proc/self/fd/{fd}"], pass_fds=[fd]).returncode
    assert os.pread(fd, len(before) + 1, 0) == before, "the earlier log was written over"
    sys.exit(code)


def terminal(columns, words):
    pid, fd = pty.fork()
    if pid == 0:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.environ.update(TERM="xterm", NO_COLOR="1")
        os.execv(words[0], words)
    shown = b""
    try:
        while part := os.read(fd, 65536):
            shown += part
    except OSError:
        pass
    os.waitpid(pid, 0)
    print(shown.decode().replace("\r\n", "\n").replace("\r", "\n").replace("\033[K", ""), end="")


if sys.argv[1] == "events":
    check_events(sys.argv[2], sys.argv[3])
elif sys.argv[1] == "metrics":
    check_metrics(sys.argv[2])
elif sys.argv[1] == "sealed":
    sealed(sys.argv[2], sys.argv[3:])
else:
    terminal(int(sys.argv[2]), sys.argv[3:])
