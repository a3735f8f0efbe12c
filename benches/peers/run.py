#!/usr/bin/env python3
"""Compares the exporter with Benthos and Grove, which can be configured to do the same: read the audit log, send log records.

Each program runs alone against `orgdata-exporter simulate` and a collector that counts records by `log.record.uid`. Needs Linux,
Go, Python 3.11 with venv, and `cargo build --release --locked`. Everything is written below `target/peers`. A round
takes about 35 minutes. docs/comparison.md has the results and says what they mean.

The exit status is 1 if a program was not measured, or if the exporter lost an event.
"""
import argparse
import collections
import gzip
import http.server
import json
import math
import os
import pathlib
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.request

BENTHOS = "v4.60.0"
GROVE = "2.2.0"

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
EXPORTER = ROOT / "target/release/orgdata-exporter"
WORK = ROOT / "target/peers"
KEY = "demo-key"

START = 60.0
IDLE = 5.0
# The re-read window of the sustained load. The exporter's work is only steady once it has been running for longer.
WINDOW = 60.0
WARM_UP = WINDOW + 35.0
SUSTAINED = 150.0
RATE = 200
OUTAGE = 20.0
TROUBLE = 60.0
LATE, BEHIND = 50, 8
KILLS = 10
BURST = 5_000
# Longer than the backoff of any of the programs.
QUIET = 45.0
# Longer than any of the programs needs to send something again.
SETTLED = 20.0

# An answer of something that is no collector.
FOREIGN = b'{"error":{"code":503,"message":"no backend"}}'

# The start of an id: with its length in protobuf, or the quote that ends it in JSON.
UID = re.compile(rb'log\.record\.uid(?:\x12.\n(.)|","value":\{"stringValue":")', re.DOTALL)


class NotMeasured(Exception):
    pass


def entry_numbers(body):
    """Returns the numbers of the entries in a request. The simulator numbers them in order of arrival, at the end of the id."""
    for match in UID.finditer(body):
        start = match.end()
        end = start + match[1][0] if match[1] else body.index(b'"', start)
        before, _, number = body[start:end].rpartition(b"-")
        # The exporter's checkpoints are no entries.
        if not before.startswith(b"orgdata."):
            yield int(number, 16)


class Collector(http.server.ThreadingHTTPServer):
    """An OTLP/HTTP receiver that counts records."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Request)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.lock = threading.Lock()
        self.reset()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):
        """Ignores broken connections of killed programs."""

    def reset(self):
        """Forgets all records, and accepts all that come."""
        with self.lock:
            self.counts, self.arrivals = collections.Counter(), []
            # The answer to every request, the number of an entry that is rejected for good, and a trap.
            self.refusal, self.rejected, self.trap = None, None, None

    def take(self, body):
        """Takes the records of a request. Returns the answer if it is refused, and the trap that it springs."""
        numbers = list(entry_numbers(body))
        with self.lock:
            if self.refusal:
                return self.refusal, None
            if self.rejected in numbers:
                return (400, b"{}"), None
            self.counts.update(numbers)
            self.arrivals.append((time.monotonic(), max(numbers, default=-1)))
            sprung = None
            if self.trap and self.trap.is_sprung(numbers):
                sprung, self.trap = self.trap, None
            return None, sprung

    def first(self, since):
        """Returns when the first request with an entry of this number or a later one came."""
        with self.lock:
            return next((at for at, newest in self.arrivals if newest >= since), None)

    def last(self):
        with self.lock:
            return self.arrivals[-1][0] if self.arrivals else 0.0

    def check(self, entries):
        """Returns how many entries of a range are missing, and how many records there are beyond one for each."""
        with self.lock:
            counts = [self.counts[number] for number in entries]
        return counts.count(0), sum(count - 1 for count in counts if count)

    def wait(self, entries, quiet=QUIET):
        """Waits until every entry has come, or until nothing has come for this time."""
        start = time.monotonic()
        while self.check(entries)[0] and time.monotonic() - max(self.last(), start) < quiet:
            time.sleep(0.2)

    def settle(self, entries, quiet=QUIET):
        """Does the same, then waits for records that come again, and returns what `check` does."""
        self.wait(entries, quiet)
        while time.monotonic() - self.last() < SETTLED:
            time.sleep(0.2)
        return self.check(entries)


class Trap:
    """Kills a program while it sends: when so many records have come, before they are acknowledged or so many seconds after."""

    def __init__(self, program, records, delay):
        self.program, self.missing, self.delay = program, records, delay
        self.is_done = threading.Event()

    def is_sprung(self, numbers):
        self.missing -= len(numbers)
        return self.missing <= 0

    def kill(self):
        self.program.kill()
        self.is_done.set()


class Request(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        refusal, trap = self.server.take(body)
        kind = "application/json" if refusal else self.headers["Content-Type"]
        status, answer = refusal or (200, b"{}" if kind == "application/json" else b"")
        if trap and trap.delay is None:
            trap.kill()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
        if trap and trap.delay is not None:
            self.wfile.flush()
            time.sleep(trap.delay)
            trap.kill()

    def log_message(self, *_):
        pass


class Simulator:
    def __init__(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        address = self.url.removeprefix("http://")
        flags = ["--listen", address, "--api-key", KEY, "--history", "10", "--rate", "0", "--ticket-change-rate", "0"]
        self.process = subprocess.Popen([EXPORTER, "simulate", *flags], stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def control(self, **command):
        return fetch(f"{self.url}/control/", json.dumps(command).encode())

    def entries(self):
        return fetch(f"{self.url}/control/")["events"]

    def requests(self):
        return fetch(f"{self.url}/control/requests")["audit"]


def fetch(url, body=None):
    with urllib.request.urlopen(url, body, timeout=60) as response:
        return json.load(response)


class Program:
    """A program under test, with a new state directory."""

    def __init__(self, name, api, collector, environment):
        self.name, self.process = name, None
        self.state = WORK / f"{name}-state"
        shutil.rmtree(self.state, ignore_errors=True)
        self.state.mkdir(parents=True)
        settings = {"exporter": exporter, "benthos": benthos, "grove": grove}[name]
        self.command, own = settings(self.state, api, collector)
        self.environment = os.environ | environment | own

    def start(self):
        with (WORK / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(self.command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()

    def cpu(self):
        """Returns the CPU time so far, in seconds."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self, field):
        """Returns VmRSS or VmHWM, in MiB."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{field}:\s+(\d+) kB", status)[1]) / 1024


def exporter(state, api, collector):
    flags = {
        "--api.base-url": api,
        "--otlp.endpoint": collector,
        "--otlp.protocol": "http/protobuf",
        "--audit.poll-interval": "1s",
        "--tickets.enabled": "false",
        "--state.path": state / "state.db",
        "--web.listen-address": "127.0.0.1:0",
    }
    return [EXPORTER, *(f"{flag}={value}" for flag, value in flags.items())], {"ORGDATA_API_KEY": KEY}


def benthos(state, api, collector):
    environment = {"STATE": str(state), "API": api, "KEY": KEY, "OTLP": collector}
    return [WORK / "benthos", "-c", HERE / "benthos/audit.yaml"], environment


def grove(state, api, collector):
    audit = {"name": "audit", "identity": "organization", "connector": "orgdata_audit", "url": api, "key": KEY}
    # Without outputs, each entry is sent twice: as it is, and processed.
    audit |= {"frequency": 1, "outputs": {"logs": "raw"}}
    (state / "config").mkdir()
    (state / "config/audit.json").write_text(json.dumps(audit))
    environment = {
        "GROVE_CONFIG_LOCAL_FILE_PATH": state / "config",
        "GROVE_CACHE_HANDLER": "local_file",
        "GROVE_CACHE_LOCAL_FILE_PATH": state / "cache",
        "GROVE_OUTPUT_HANDLER": "otlp_http",
        "GROVE_OUTPUT_OTLP_HTTP_URL": f"{collector}/v1/logs",
        # The lock outlives a kill, and by default stops the next process for five minutes.
        "GROVE_LOCK_DURATION": 5,
        "POWERTOOLS_LOG_LEVEL": "WARNING",
    }
    return [WORK / "grove/bin/groved"], {name: str(value) for name, value in environment.items()}


def install(name):
    """Installs a program, and returns its version."""
    if name == "exporter":
        if not EXPORTER.exists():
            raise NotMeasured("run `cargo build --release --locked` first")
        return output(EXPORTER, "--version").split()[1]
    # Both builds write beside their source.
    source = WORK / f"{name}-source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(HERE / name, source)
    if name == "benthos":
        output("go", "mod", "init", "peers", directory=source)
        output("go", "get", f"github.com/redpanda-data/benthos/v4@{BENTHOS}", directory=source)
        output("go", "build", "-mod=mod", "-o", WORK / "benthos", ".", directory=source)
        return f"{BENTHOS}, {output('go', 'env', 'GOVERSION').strip()}"
    output(sys.executable, "-m", "venv", WORK / "grove")
    output(WORK / "grove/bin/pip", "install", "--quiet", f"grove=={GROVE}", source)
    return f"{GROVE}, Python {output(WORK / 'grove/bin/python', '--version').split()[1]}"


def output(*command, directory=None):
    try:
        done = subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise NotMeasured(error) from error
    except subprocess.CalledProcessError as error:
        raise NotMeasured(f"{' '.join(map(str, command))}: {error.stderr.strip()}") from error
    return done.stdout


def start(program, simulator, collector):
    """Starts a program, and returns the number of the next entry once it delivers new ones."""
    collector.reset()
    program.start()
    old, deadline = simulator.entries(), time.monotonic() + START
    while collector.first(old) is None:
        if program.process.poll() is not None or time.monotonic() > deadline:
            raise NotMeasured(f"it does not run: see {WORK / program.name}.log")
        simulator.control(events=1)
        time.sleep(1)
    time.sleep(IDLE)
    return simulator.entries()


def measure_cost(program, simulator, collector, events):
    new = start(program, simulator, collector)
    idle, cpu, requests = program.memory("VmRSS"), program.cpu(), simulator.requests()
    simulator.control(events=events)
    begin, entries = time.monotonic(), range(new, new + events)
    collector.wait(entries)
    first, last = collector.first(new) or math.inf, collector.last()
    time.sleep(1)
    values = {
        "catch-up: CPU-seconds": program.cpu() - cpu,
        "catch-up: memory, peak, MiB": program.memory("VmHWM"),
        "idle: memory, MiB": idle,
        "catch-up: first record after, s": first - begin,
        "catch-up: last record after, s": last - begin,
        "catch-up: requests per 1000 events": (simulator.requests() - requests) * 1000 / events,
    }
    values["catch-up: lost"], values["catch-up: twice"] = collector.settle(entries)
    return values


def measure_sustained(program, simulator, collector, _):
    new = start(program, simulator, collector)
    simulator.control(rate=RATE)
    time.sleep(WARM_UP)
    entries, cpu, requests = simulator.entries(), program.cpu(), simulator.requests()
    time.sleep(SUSTAINED)
    cpu, requests, events = program.cpu() - cpu, simulator.requests() - requests, simulator.entries() - entries
    simulator.control(rate=0)
    lost, twice = collector.settle(range(new, simulator.entries()))
    load = f"{RATE} events/s"
    return {
        f"{load}: CPU-seconds of 100,000 events": cpu * 100_000 / events,
        f"{load}: requests per 1000 events": requests * 1000 / events,
        f"{load}: lost": lost,
        f"{load}: twice": twice,
    }


def measure_late(program, simulator, collector, _):
    start(program, simulator, collector)
    # Late ones are below entries that were read.
    simulator.control(rate=10)
    time.sleep(2 * BEHIND)
    simulator.control(rate=0)
    time.sleep(IDLE)
    new = simulator.entries()
    simulator.control(late={"count": LATE, "behind": f"{BEHIND}s"})
    lost, _ = collector.settle(range(new, new + LATE), quiet=30.0)
    return {f"{LATE} late entries: lost": lost}


def measure_kills(program, simulator, collector, dice):
    new = start(program, simulator, collector)
    for kill in range(KILLS):
        # Every second kill comes before the acknowledgement.
        delay = dice.uniform(0, 0.05) if kill % 2 else None
        trap = collector.trap = Trap(program, dice.randrange(1, BURST), delay)
        simulator.control(events=BURST)
        if not trap.is_done.wait(START):
            raise NotMeasured(f"it sent nothing for {START:.0f} s after kill {kill}")
        program.start()
    lost, twice = collector.settle(range(new, simulator.entries()))
    return {f"{KILLS} kills: lost": lost, f"{KILLS} kills: twice": twice}


def measure_refusals(program, simulator, collector, _):
    start(program, simulator, collector)
    values = {}
    for title, seconds, refusal in [
        ("collector answers 503", OUTAGE, (503, b"{}")),
        ("collector answers 401", OUTAGE, (401, b"{}")),
        ('collector answers 200 with `{"error":…}`', TROUBLE, (200, FOREIGN)),
    ]:
        new = simulator.entries()
        collector.refusal = refusal
        simulator.control(rate=10)
        time.sleep(seconds)
        collector.refusal = None
        simulator.control(rate=0)
        lost, twice = collector.settle(range(new, simulator.entries()))
        title = f"{title} for {seconds:.0f} s, {10 * seconds:.0f} events"
        values |= {f"{title}: lost": lost, f"{title}: twice": twice}
    return values


def measure_rejection(program, simulator, collector, _):
    new = start(program, simulator, collector)
    collector.rejected = new + 500
    simulator.control(events=1_000)
    simulator.control(rate=10)
    time.sleep(TROUBLE)
    simulator.control(rate=0)
    about = 1_000 + 10 * TROUBLE
    others = [number for number in range(new, simulator.entries()) if number != collector.rejected]
    lost, _ = collector.settle(others)
    return {f"1 record rejected for good: others of about {about:,.0f} not delivered": lost}


def measure(name, collector, events, dice):
    """Returns a value for each row."""
    values = {}
    reread = {"ORGDATA_AUDIT_REREAD_INTERVAL": "15s"}
    phases = [
        (measure_cost, events, {}),
        # An hour in a minute: with the defaults, too, there are four passes in a window.
        (measure_sustained, None, reread | {"ORGDATA_AUDIT_REREAD_WINDOW": f"{WINDOW:.0f}s"}),
        # With the default, 15 minutes, the search for late entries would take as long.
        (measure_late, None, reread),
        (measure_kills, dice, reread),
        (measure_refusals, None, {}),
        (measure_rejection, None, {}),
    ]
    for phase, argument, environment in phases:
        simulator = Simulator()
        program = Program(name, simulator.url, collector.url, environment)
        try:
            values |= phase(program, simulator, collector, argument)
        finally:
            program.kill()
            simulator.process.kill()
            simulator.process.wait()
    return values


def text(value):
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def spread(values):
    """Returns the median, with the least and the greatest value if they differ."""
    least, middle, greatest = map(text, [min(values), statistics.median(values), max(values)])
    return middle if least == greatest else f"{middle} ({least} to {greatest})"


def table(results):
    lines = [["", *results], ["---"] * (len(results) + 1)]
    titles = next(iter(results.values()))[0]
    for title in titles:
        lines.append([title, *(spread([values[title] for values in rounds]) for rounds in results.values())])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=3, help="odd, so that the median was measured")
    arguments.add_argument("--events", type=int, default=100_000, help="of the catch-up")
    arguments.add_argument("--seed", type=int, default=1, help="of the kills and the order of the programs")
    arguments.add_argument("--only", choices=["exporter", "benthos", "grove"], action="append")
    arguments = arguments.parse_args()
    if arguments.rounds % 2 == 0:
        sys.exit("--rounds has to be odd")
    WORK.mkdir(parents=True, exist_ok=True)

    results, problems = {}, []

    def skip(name, error):
        problems.append(f"{name}: not measured: {error}")
        print(problems[-1], flush=True)
        results.pop(name, None)

    for name in arguments.only or ["exporter", "benthos", "grove"]:
        try:
            print(f"{name}: {install(name)}", flush=True)
            results[name] = []
        except NotMeasured as error:
            skip(name, error)
    collector, dice = Collector(), random.Random(arguments.seed)
    for number in range(arguments.rounds):
        for name in dice.sample(sorted(results), len(results)):
            load = os.getloadavg()[0]
            try:
                values = measure(name, collector, arguments.events, dice)
            except NotMeasured as error:
                skip(name, error)
                continue
            results[name].append(values)
            print(f"round {number + 1}, {name}, load before {load:.1f}:", flush=True)
            for title, value in values.items():
                print(f"    {title}: {text(value)}", flush=True)

    if results:
        print(f"\n{arguments.events:,} events, median of {arguments.rounds} rounds (least to greatest)\n\n{table(results)}")
    for values in results.get("exporter", []):
        problems += [f"exporter: {title}: {value}" for title, value in values.items() if title.endswith(("lost", "not delivered")) and value]
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
