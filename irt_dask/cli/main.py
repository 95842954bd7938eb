"""Commands, and what becomes of errors: 2 for a user's mistake, 1 otherwise, no traceback."""

from __future__ import annotations

import errno
import io
import os
import re
import signal
import sys
import traceback
from typing import Any, NoReturn

import click

from irt_dask._version import __version__
from irt_dask.cli import (
    banks,
    benchmark,
    bifactor,
    calibrate,
    data,
    documents,
    examine,
    linking,
    look,
    options,
    population,
    predict,
    publish,
    questions,
    reporting,
    residuals,
    secure,
    status,
    work,
)
from irt_dask.cli.common import printable
from irt_dask.cli.garbage import collect_seldom
from irt_dask.cli.helped import helped
from irt_dask.cli.interrupts import Interrupts, silence
from irt_dask.cli.spoken import typed
from irt_dask.errors import InputError, IrtDaskError, starting_threads, without_credentials


class _Commands(click.Group):
    """Commands whose errors speak of options as they are typed."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except IrtDaskError as error:
            command = self.commands.get(ctx.invoked_subcommand or "")
            error.args = (typed(str(error), command),)
            raise


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="irt-dask")
def cli() -> None:
    """Item response theory at scale.

    Calibrate items and score persons from response files of any size, on this machine or on a Dask
    cluster. Start with: irt-dask demo, and with a file of yours: irt-dask docs start
    """


for command in (
    work.demo,
    data.simulate,
    look.check,
    look.init,
    data.ingest,
    data.append,
    data.verify,
    calibrate.calibrate,
    bifactor.bifactor,
    population.population,
    work.score,
    examine.fit,
    examine.dif,
    residuals.q3,
    residuals.curves,
    examine.information,
    banks.score_table,
    banks.convert,
    options.options,
    linking.link,
    linking.lord,
    predict.loo,
    benchmark.logs,
    benchmark.benchmark,
    questions.choose,
    questions.predict,
    publish.tabulate,
    publish.regress,
    publish.trend,
    reporting.report,
    work.run,
    status.status,
    secure.certs,
    data.info,
    documents.docs,
):
    cli.add_command(helped(command))


def main() -> None:
    """Run the command line and exit."""
    collect_seldom()
    interrupts = Interrupts()
    for stream in (sys.stdout, sys.stderr):  # names of files and items may be beyond a terminal
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
    try:
        # interrupts end workers, jobs and temporary files too
        with interrupts, starting_threads():
            cli.main(standalone_mode=False)
    except click.ClickException as error:
        said = io.StringIO()
        error.show(said)
        _tell(without_credentials(said.getvalue()).rstrip("\n"))
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        silence()
        click.echo("stopped; a run can be resumed by the same command", err=True)
        if interrupts.terminated:
            signal.raise_signal(signal.SIGTERM)  # so that whoever sent it sees that it did it
        sys.exit(1)
    except IrtDaskError as error:
        _tell(f"error: {printable(str(error))}")
        sys.exit(2 if isinstance(error, InputError) else 1)
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0)
        if remedy is None:
            _defect()
        place = f"{error.filename}: " if error.filename else ""
        _tell(f"error: {place}{error.strerror}; {remedy}")
        sys.exit(1)
    except Exception:
        _defect()


#: What the system refuses, whatever the program: no mistake of ours.
_FULL, _FAILS = "make room and start again", "the disk or the network file system fails"
_REMEDIES = {
    errno.ENOSPC: _FULL, errno.EDQUOT: _FULL, errno.EROFS: "it can only be read; write elsewhere",
    errno.EIO: _FAILS, errno.ESTALE: f"{_FAILS}: start again when it answers",
    errno.EMFILE: "too many files are open: raise the limit ('ulimit -n')",
    errno.ENFILE: "too many files are open on this machine",
    errno.EACCES: "it belongs to somebody else", errno.EPERM: "it belongs to somebody else",
}  # fmt: skip


def _tell(text: str) -> None:
    """Print an error, its first word in red on a terminal, unless NO_COLOR says not to."""
    before, word, after = re.split("((?:^|(?<=\n))[Ee]rror:)", text, maxsplit=1)
    red = word if os.environ.get("NO_COLOR") else click.style(word, fg="red", bold=True)
    click.echo(before + red + after, err=True)


def _defect() -> NoReturn:
    """Show where a mistake of ours was made."""
    click.echo(without_credentials(traceback.format_exc()), err=True)
    _tell("error: this is a defect of irt_dask; please report the lines above")
    sys.exit(1)
