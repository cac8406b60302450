"""`make prof ROW=...`: where the server's time goes during one row."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

REPORT_LINES = 120
INSTALL_HINT = "no profiler here: apt-get install linux-perf, or pip install py-spy"


class Profiler:
    """Samples one server from its start to its end and writes a text report."""

    def __init__(self, report: Path) -> None:
        self.report = report
        self.samples = report.with_suffix(".data")
        self.process: subprocess.Popen[bytes] | None = None
        beside_python = str(Path(sys.executable).parent)
        self.py_spy = shutil.which("py-spy") or shutil.which("py-spy", path=beside_python)
        self.perf = shutil.which("perf")

    def missing(self) -> str | None:
        return None if self.perf or self.py_spy else INSTALL_HINT

    def attach(self, pid: int) -> None:
        self.report.parent.mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen(
            self._command(pid), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def _command(self, pid: int) -> list[str]:
        if self.perf:
            # cpu-clock also works in virtual machines, which often have no cycle counter.
            record = [self.perf, "record", "-e", "cpu-clock", "-F", "997", "-g"]
            return [*record, "-o", str(self.samples), "-p", str(pid)]
        assert self.py_spy is not None
        options = ["--native", "--rate", "500", "--format", "raw", "--duration", "unlimited"]
        return [self.py_spy, "record", *options, "-o", str(self.report), "--pid", str(pid)]

    def finish(self) -> None:
        """After the server has ended, or is about to: perf and py-spy end with it."""
        if self.process is None:
            return
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(30)
        if self.perf:
            self._write_perf_report(self.perf)

    def _write_perf_report(self, perf: str) -> None:
        read = [perf, "report", "--stdio", "-i", str(self.samples), "--no-children"]
        flat = subprocess.run([*read, "-g", "none"], capture_output=True, text=True, check=False)
        tree = subprocess.run(
            [*read, "-g", "caller,0.5,callee,function,percent", "--percent-limit", "2"],
            capture_output=True,
            text=True,
            check=False,
        )
        lines = [line for line in flat.stdout.splitlines() if line and not line.startswith("#")]
        self.report.write_text("\n".join(lines[:REPORT_LINES]) + "\n\n" + tree.stdout)
