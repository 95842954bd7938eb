"""The command that makes certificates."""

from __future__ import annotations

import click


@click.command()
@click.argument("folder", type=click.Path())
@click.option("--host", "hosts", multiple=True, default=("localhost",), show_default=True,
              metavar="NAME", help="Name or IP address of the scheduler's host, the one that "
              "clients use first. Repeat as needed.")  # fmt: skip
@click.option("--days", type=int, default=365, show_default=True, help="How long they are valid.")
def certs(folder: str, hosts: tuple[str, ...], days: int) -> None:
    """Make certificates for a cluster whose connections are encrypted.

    FOLDER is new: an authority of its own, a certificate and a private key each for the scheduler,
    the workers and the clients, and cluster.toml, which --cluster takes. See 'irt-dask docs
    security'.
    """
    from irt_dask.clusters.certificates import commands, write_certificates

    made = write_certificates(folder, hosts=hosts, days=days)
    scheduler, worker = commands(made, hosts[0])
    click.echo(f"made {made}, valid for {days} days; its *-key.pem files are secrets\n")
    click.echo("where others have a login, before the commands of scheduler and workers:\n")
    click.echo("  export DASK_TEMPORARY_DIRECTORY=A_FOLDER_THAT_ONLY_YOU_MAY_WRITE_TO\n")
    click.echo(f"on the scheduler's host (ca.pem, scheduler*.pem):\n\n  {scheduler}\n")
    click.echo(f"on each host of workers (ca.pem, worker*.pem):\n\n  {worker}\n")
    click.echo("where irt-dask is typed (ca.pem, client*.pem, cluster.toml):\n")
    click.echo(f"  irt-dask run PIPELINE.toml --cluster {made / 'cluster.toml'}")
