"""Commands, and what becomes of errors: 2 for a user's mistake, 1 otherwise, no traceback."""

from __future__ import annotations

import errno
import signal
import sys
import traceback
from typing import NoReturn

import click

from irt_dask._version import __version__
from irt_dask.cli import data, secure, work
from irt_dask.cli.interrupts import Interrupts
from irt_dask.errors import InputError, IrtDaskError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="irt-dask")
def cli() -> None:
    """Item response theory at scale.

    Calibrate items and score persons from response files of any size, on this machine or on a Dask
    cluster. Start with: irt-dask demo
    """


for command in (
    work.demo,
    data.simulate,
    data.ingest,
    data.append,
    data.verify,
    work.calibrate,
    work.score,
    work.report,
    work.run,
    secure.certs,
    data.info,
    data.docs,
):
    cli.add_command(command)


def main() -> None:
    """Run the command line and exit."""
    interrupts = Interrupts()
    try:
        with interrupts:  # which end workers, jobs and temporary files too
            cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped; a run can be resumed by the same command", err=True)
        if interrupts.terminated:
            signal.raise_signal(signal.SIGTERM)  # so that whoever sent it sees that it did it
        sys.exit(1)
    except IrtDaskError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2 if isinstance(error, InputError) else 1)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            _defect()
        place = f"{error.filename} cannot be written: " if error.filename else ""
        click.echo(f"error: {place}{error.strerror}; make room and start again", err=True)
        sys.exit(1)
    except Exception:
        _defect()


def _defect() -> NoReturn:
    """Show where a mistake of ours was made."""
    traceback.print_exc()
    click.echo("error: this is a defect of irt_dask; please report the lines above", err=True)
    sys.exit(1)
