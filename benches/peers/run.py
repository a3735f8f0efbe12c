#!/usr/bin/env python3
"""Compares the exporter with Benthos and Grove, which can be configured to do the same: read the audit log, send log records.

Each program runs alone against `orgdata-exporter simulate` and a collector that counts records by `log.record.uid`. Needs Linux,
Go, Python 3.11 with venv, and `cargo build --release --locked`. Everything is written below `target/peers`. Three rounds
take about 40 minutes. docs/comparison.md has the results and says what they mean.
"""
import argparse
import collections
import gzip
import http.server
import json
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
SUSTAINED = 60.0
OUTAGE = 20.0
LATE = 50
KILLS = 10
BURST = 5_000
# Longer than the backoff of any of the programs.
QUIET = 45.0

ROWS = [
    "CPU-seconds of the catch-up",
    "memory, peak, MiB",
    "memory, idle, MiB",
    "first record of the catch-up after, s",
    "last record of the catch-up after, s",
    "requests per 1000 events, catch-up",
    "CPU-seconds of 100,000 events, 100 events/s",
    "requests per 1000 events, 100 events/s",
    "collector 503 for 20 s: lost",
    "collector 503 for 20 s: twice",
    "50 late entries: lost",
    "10 kills: lost",
    "10 kills: twice",
]

# The start of an id: with its length in protobuf, or the quote that ends it in JSON.
UID = re.compile(rb'log\.record\.uid(?:\x12.\n(.)|","value":\{"stringValue":")', re.DOTALL)


class NotMeasured(Exception):
    pass


def entry_numbers(body):
    """Returns the numbers of the entries in a request. The simulator numbers them in order of arrival, at the end of the id."""
    for match in UID.finditer(body):
        start = match.end()
        end = start + match[1][0] if match[1] else body.index(b'"', start)
        yield int(body[start:end].rpartition(b"-")[2], 16)


class Collector(http.server.ThreadingHTTPServer):
    """An OTLP/HTTP receiver that counts records."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Request)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.is_down, self.lock = False, threading.Lock()
        self.forget()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):
        """Ignores broken connections of killed programs."""

    def forget(self):
        with self.lock:
            self.counts, self.arrivals = collections.Counter(), []

    def take(self, body):
        numbers = list(entry_numbers(body))
        with self.lock:
            self.counts.update(numbers)
            self.arrivals.append((time.monotonic(), max(numbers, default=-1)))

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
        return self.check(entries)


class Request(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        is_down = self.server.is_down
        if not is_down:
            self.server.take(body)
        kind = self.headers["Content-Type"]
        answer = b"{}" if kind == "application/json" else b""
        self.send_response(503 if is_down else 200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

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
    collector.forget()
    collector.is_down = False
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
    begin = time.monotonic()
    lost, _ = collector.wait(range(new, new + events))
    if lost:
        raise NotMeasured(f"{lost} events of the catch-up did not arrive")
    first, last = collector.first(new) - begin, collector.last() - begin
    time.sleep(1)
    values = [program.cpu() - cpu, program.memory("VmHWM"), idle, first, last]
    return [*values, (simulator.requests() - requests) * 1000 / events]


def measure_sustained(program, simulator, collector, _):
    start(program, simulator, collector)
    simulator.control(rate=100)
    time.sleep(SUSTAINED / 2)
    entries, cpu, requests = simulator.entries(), program.cpu(), simulator.requests()
    time.sleep(SUSTAINED)
    events = simulator.entries() - entries
    return [(program.cpu() - cpu) * 100_000 / events, (simulator.requests() - requests) * 1000 / events]


def measure_failures(program, simulator, collector, dice):
    new = start(program, simulator, collector)
    simulator.control(rate=100)
    collector.is_down = True
    time.sleep(OUTAGE)
    collector.is_down = False
    # Entries still come, so that late ones are below entries that were read.
    simulator.control(rate=10)
    values = [*collector.wait(range(new, simulator.entries()))]

    time.sleep(IDLE)
    simulator.control(rate=0)
    new = simulator.entries()
    simulator.control(late={"count": LATE, "behind": "8s"})
    values.append(collector.wait(range(new, new + LATE), quiet=30.0)[0])

    new = simulator.entries()
    for kill in range(KILLS):
        burst = simulator.entries()
        simulator.control(events=BURST)
        if kill % 2:
            deadline = time.monotonic() + START
            while collector.first(burst) is None and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(dice.uniform(0, 0.3))
        else:
            time.sleep(dice.uniform(0, 2))
        program.kill()
        program.start()
    return values + [*collector.wait(range(new, simulator.entries()))]


def measure(name, collector, events, dice):
    """Returns a value for each row."""
    values = []
    phases = [
        (measure_cost, events, {}),
        # An hour in a minute: with the defaults, too, there are four passes in a window.
        (measure_sustained, None, {"ORGDATA_AUDIT_REREAD_INTERVAL": "15s", "ORGDATA_AUDIT_REREAD_WINDOW": "1m"}),
        # With the default, 15 minutes, the search for late entries would take as long.
        (measure_failures, dice, {"ORGDATA_AUDIT_REREAD_INTERVAL": "15s"}),
    ]
    for phase, argument, environment in phases:
        simulator = Simulator()
        program = Program(name, simulator.url, collector.url, environment)
        try:
            values += phase(program, simulator, collector, argument)
        finally:
            program.kill()
            simulator.process.kill()
            simulator.process.wait()
    return values


def text(value):
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def spread(values):
    """Returns the median, with the least and the greatest value if they differ."""
    least, middle, greatest = map(text, [min(values), statistics.median_low(values), max(values)])
    return middle if least == greatest else f"{middle} ({least} to {greatest})"


def table(results):
    lines = [["", *results], ["---"] * (len(results) + 1)]
    for row, title in enumerate(ROWS):
        lines.append([title, *(spread([values[row] for values in rounds]) for rounds in results.values())])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--events", type=int, default=100_000, help="of the catch-up")
    arguments.add_argument("--only", choices=["exporter", "benthos", "grove"], action="append")
    arguments = arguments.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)

    results = {}
    for name in arguments.only or ["exporter", "benthos", "grove"]:
        try:
            print(f"{name}: {install(name)}", flush=True)
            results[name] = []
        except NotMeasured as error:
            print(f"{name}: not measured: {error}", flush=True)
    collector, dice = Collector(), random.Random(1)
    for number in range(arguments.rounds):
        for name in list(results):
            load = os.getloadavg()[0]
            try:
                values = measure(name, collector, arguments.events, dice)
            except NotMeasured as error:
                print(f"{name}: not measured: {error}", flush=True)
                del results[name]
                continue
            results[name].append(values)
            print(f"round {number + 1}, {name}, load before {load:.1f}:", *map(text, values), flush=True)

    if not results:
        sys.exit("nothing was measured")
    print(f"\n{arguments.events:,} events, median of {arguments.rounds} rounds (least to greatest)\n\n{table(results)}")


if __name__ == "__main__":
    main()
