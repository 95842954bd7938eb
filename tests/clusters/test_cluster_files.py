"""The files that users copy from cluster/ and pipelines/: they load, validate and keep promises."""

from __future__ import annotations

import copy
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import tomllib
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from irt_dask.clusters import ClusterConfig
from irt_dask.workflow import RunConfig, read_config, read_scoring
from irt_dask.workflow.scoring import ScoringConfig

ROOT = Path(__file__).parents[2]
CLUSTER, KUBERNETES = ROOT / "cluster", ROOT / "cluster" / "kubernetes"
#: An old and a new release that the manifests are for.
RELEASES = ("1.29", "1.37")


def folder_of(*names):
    files = [p for base in ("cluster", "pipelines") for p in (ROOT / base).rglob("*")]
    return sorted(p for p in files if p.suffix in names)


def named(path):
    return str(path.relative_to(ROOT))


# --- TOML -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", folder_of(".toml"), ids=named)
def test_toml_files_load(path):
    content = tomllib.loads(path.read_text())
    if "scoring" in content:
        assert isinstance(read_scoring(path), ScoringConfig)
    elif "data" in content:
        assert isinstance(read_config(path), RunConfig)
    else:
        assert set(content) == {"cluster"}
        assert isinstance(ClusterConfig.of(path), ClusterConfig)


# --- container ------------------------------------------------------------------------------------


def test_constraints_pin_what_the_package_needs():
    pins = {}
    for line in (CLUSTER / "container" / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, version = re.fullmatch(r"([\w.-]+)==([\w.]+)", line).groups()
            pins[canonicalize_name(name)] = version
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needs = project["dependencies"] + project["optional-dependencies"]["s3"]
    for need in map(Requirement, needs):
        version = pins.get(canonicalize_name(need.name))
        assert version is not None, f"{need.name} is not pinned; see the head of constraints.txt"
        assert need.specifier.contains(version), f"{need.name} is pinned to {version}"


def test_container_is_pinned_and_not_root():
    text = (CLUSTER / "container" / "Containerfile").read_text()
    assert re.search(r"^ARG BASE=\S+/python:3\.11\.\d+-slim-\w+$", text, re.M)
    last = text.rpartition("\nFROM ")[2]
    assert re.search(r"^USER 10001:10001$", last, re.M)
    assert re.search(r'^ENTRYPOINT \["irt-dask"\]$', last, re.M)
    sources = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.M)
    copied = [name for names in sources for name in names.split()]
    assert "pyproject.toml" in copied
    assert all((ROOT / name).exists() for name in copied)


# --- Kubernetes -----------------------------------------------------------------------------------


def manifests():
    """Every document of every file, with the file's name."""
    return [
        pytest.param(document, id=f"{path.name}-{document['kind']}-{document['metadata']['name']}")
        for path in sorted(KUBERNETES.glob("*.yaml"))
        if path.name != "kustomization.yaml"
        for document in yaml.safe_load_all(path.read_text())
    ]


ALL = [p.values[0] for p in manifests()]


def pods():
    """Specification, labels and name of the pods that the manifests start."""
    found = []
    for d in ALL:
        name, spec = d["metadata"]["name"], d.get("spec", {})
        if d["kind"] == "DaskCluster":  # the operator gives its labels to the pods
            labels = d["metadata"]["labels"]
            found += [(f"{part}", spec[part]["spec"], labels) for part in ("scheduler", "worker")]
            continue
        job = {"Job": d, "CronJob": spec.get("jobTemplate")}.get(d["kind"])
        if job is not None:
            template = job["spec"]["template"]
            found.append((name, template["spec"], template["metadata"]["labels"]))
    return [pytest.param(spec, labels, id=name) for name, spec, labels in found]


def of(kind, name=None):
    found = [d for d in ALL if d["kind"] == kind and name in (None, d["metadata"]["name"])]
    assert len(found) == 1
    return found[0]


def test_all_kinds_are_there():
    kinds = {d["kind"] for d in ALL}
    assert kinds == {"Namespace", "ServiceAccount", "PersistentVolumeClaim", "NetworkPolicy",
                     "DaskCluster", "Job", "CronJob"}  # fmt: skip
    assert len(pods()) == 4


@pytest.mark.parametrize("document", manifests())
def test_manifests_validate(document):
    if document["kind"] != "DaskCluster":
        for release in RELEASES:
            kubernetes_validate.validate(document, release, strict=True)
        return
    # Of what the operator makes, Kubernetes knows the pods and the service.
    for part in document["spec"].values():
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": part["spec"]}
        kubernetes_validate.validate(pod, RELEASES[-1], strict=True)
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}}
    service["spec"] = document["spec"]["scheduler"]["service"]
    kubernetes_validate.validate(service, RELEASES[-1], strict=True)


def test_a_misspelt_key_does_not_validate():
    job = copy.deepcopy(of("Job"))
    job["spec"]["backofLimit"] = job["spec"].pop("backoffLimit")
    with pytest.raises(jsonschema.ValidationError, match="backofLimit"):
        kubernetes_validate.validate(job, RELEASES[-1], strict=True)


def strict(schema):
    """An OpenAPI schema that also refuses the keys it does not name."""
    if isinstance(schema, list):
        return [strict(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    made = {k: strict(v) for k, v in schema.items()}
    if isinstance(made.get("properties"), dict) and "type" in made:
        made.setdefault("additionalProperties", False)
    return made


def test_dask_cluster_validates_against_the_operators_definition():
    package = importlib.util.find_spec("dask_kubernetes")
    if package is None:
        pytest.skip("dask-kubernetes, which holds the operator's schema, is not installed")
    charts = Path(package.submodule_search_locations[0]) / "operator" / "deployment" / "helm"
    file = charts / "dask-kubernetes-operator" / "crds" / "daskcluster.yaml"
    definition = yaml.safe_load(file.read_text())
    version = next(v for v in definition["spec"]["versions"] if v["name"] == "v1")
    known = jsonschema.Draft4Validator(strict(version["schema"]["openAPIV3Schema"]))
    written = {"spec": copy.deepcopy(of("DaskCluster")["spec"])}
    known.validate(written)
    written["spec"]["worker"]["replica"] = 2
    with pytest.raises(jsonschema.ValidationError, match="replica"):
        known.validate(written)


@pytest.mark.parametrize("spec, labels", pods())
def test_pods_have_no_privileges_and_limits(spec, labels):
    assert spec["automountServiceAccountToken"] is False
    assert spec["serviceAccountName"] == of("ServiceAccount")["metadata"]["name"]
    security = spec["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] == security["runAsGroup"] == security["fsGroup"] == 10001
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    for container in spec.get("initContainers", []) + spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        resources = container["resources"]
        assert set(resources["limits"]) == set(resources["requests"]) == {"cpu", "memory"}
        assert resources["limits"]["memory"] == resources["requests"]["memory"]
    kinds = {v["name"]: set(v) - {"name"} for v in spec["volumes"]}
    for container in spec["containers"]:  # compiled kernels and spilled data need a folder
        assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]
        assert {m["name"] for m in container["volumeMounts"]} <= set(kinds)
    assert kinds["tmp"] == {"emptyDir"}
    assert labels["app.kubernetes.io/name"] == "irt-dask"


def test_one_image():
    specs = [p.values[0] for p in pods()]
    images = {c["image"] for s in specs for c in s.get("initContainers", []) + s["containers"]}
    assert len(images) == 1


def test_account_has_no_token_and_no_role():
    assert of("ServiceAccount")["automountServiceAccountToken"] is False
    assert not any("Role" in d["kind"] for d in ALL)


def test_volume_and_secrets_are_what_pods_mount():
    claim = of("PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    made = tomllib.loads((KUBERNETES / "pipeline.toml").read_text())["directory"]
    assert made.startswith("/data/")
    secrets = set()
    for spec in (p.values[0] for p in pods()):
        for volume in spec["volumes"]:
            if "persistentVolumeClaim" in volume:
                claimed = volume["persistentVolumeClaim"]["claimName"]
                assert claimed == claim["metadata"]["name"]
            secrets |= {volume["secret"]["secretName"]} if "secret" in volume else set()
    assert secrets == {"irt-dask-scheduler", "irt-dask-worker", "irt-dask-client"}


def option(command, name):
    found = [a.partition("=")[2] for a in command if a.startswith(f"--{name}=")]
    assert len(found) == 1, f"--{name} in {command}"
    return found[0]


def test_scheduler_and_workers_agree():
    cluster = of("DaskCluster")
    name = cluster["metadata"]["name"]
    (scheduler,) = cluster["spec"]["scheduler"]["spec"]["containers"]
    (worker,) = cluster["spec"]["worker"]["spec"]["containers"]
    port = option(scheduler["command"], "port")
    assert option(scheduler["command"], "protocol") == "tls"
    assert worker["command"][:3] == ["dask", "worker", f"tls://{name}-scheduler:{port}"]
    for container, party in ((scheduler, "scheduler"), (worker, "worker")):
        assert option(container["command"], "tls-ca-file") == "/tls/ca.pem"
        assert option(container["command"], "tls-cert") == f"/tls/{party}.pem"
        assert option(container["command"], "tls-key") == f"/tls/{party}-key.pem"
        environment = {e["name"]: e for e in container["env"]}
        assert environment["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"]["value"] == "True"
    assert option(worker["command"], "nthreads") == "1"
    # The process and its container have one limit.
    assert option(worker["command"], "memory-limit") == "$(MEMORY_LIMIT)"
    limit = next(e for e in worker["env"] if e["name"] == "MEMORY_LIMIT")
    assert limit["valueFrom"] == {"resourceFieldRef": {"resource": "limits.memory"}}
    assert worker["resources"]["limits"]["cpu"] == "1"
    service = cluster["spec"]["scheduler"]["service"]
    assert service["type"] == "ClusterIP"
    assert service["selector"]["dask.org/cluster-name"] == name


def test_only_pods_of_irt_dask_reach_the_scheduler():
    cluster = of("DaskCluster")["spec"]
    own = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "irt-dask"}}}
    (scheduler,) = cluster["scheduler"]["spec"]["containers"]
    (worker,) = cluster["worker"]["spec"]["containers"]
    ports = {int(option(scheduler["command"], "port")): [own]}
    for rule in of("NetworkPolicy", "irt-dask-scheduler")["spec"]["ingress"]:
        for port in rule["ports"]:
            if port["port"] != 8787:  # health, and nothing else, for the operator
                assert rule["from"] == ports.pop(port["port"])
    assert not ports
    (rule,) = of("NetworkPolicy", "irt-dask-worker")["spec"]["ingress"]
    assert rule["from"] == [own]
    listens = {int(option(worker["command"], f"{part}-port")) for part in ("worker", "nanny")}
    assert {p["port"] for p in rule["ports"]} == listens
    everyone = of("NetworkPolicy", "irt-dask")["spec"]
    assert everyone["podSelector"] == own["podSelector"]
    assert everyone["ingress"] == []
    assert set(everyone["policyTypes"]) == {"Ingress", "Egress"}
    environment = {e["name"]: e.get("value") for e in scheduler["env"]}
    routes = environment["DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES"]
    assert routes == '["distributed.http.health"]'


def test_jobs_stop_at_a_users_mistake_and_do_not_overlap():
    nightly = of("CronJob")["spec"]
    assert nightly["concurrencyPolicy"] == "Forbid"
    for job in (of("Job")["spec"], nightly["jobTemplate"]["spec"]):
        rule = job["podFailurePolicy"]["rules"][0]
        assert rule["action"] == "FailJob"
        assert rule["onExitCodes"]["operator"] == "In"
        assert rule["onExitCodes"]["values"] == [2]
        pod = job["template"]["spec"]
        assert rule["onExitCodes"]["containerName"] == pod["containers"][0]["name"]
        assert pod["restartPolicy"] == "Never"  # else the policy is refused
        assert job["backoffLimit"] > 0  # 1 is tried again


def test_workers_of_the_nightly_pod_fit_into_it():
    config = read_scoring(KUBERNETES / "nightly.toml").cluster
    (container,) = of("CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    limits = container["resources"]["limits"]
    assert config.workers == int(limits["cpu"])
    assert config.workers * float(config.memory.removesuffix("MB")) * 1e6 < (
        0.75 * int(limits["memory"].removesuffix("Gi")) * 2**30
    )


def test_kustomization_lists_what_is_there():
    content = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())
    (generator,) = content["configMapGenerator"]
    assert set(generator["files"]) == {p.name for p in KUBERNETES.glob("*.toml")}
    apart = {"kustomization.yaml", "job.yaml"}
    assert set(content["resources"]) == {p.name for p in KUBERNETES.glob("*.yaml")} - apart
    for spec in (p.values[0] for p in pods()):
        for volume in spec["volumes"]:
            if "configMap" in volume:
                assert volume["configMap"]["name"] == generator["name"]
        for container in spec["containers"]:
            for argument in container.get("args", []):
                if argument.startswith("/pipelines/"):
                    assert Path(argument).name in generator["files"]


# --- systemd --------------------------------------------------------------------------------------

SERVICE = CLUSTER / "systemd" / "irt-dask-scoring.service"


def settings(unit):
    """Section, key and value of every line."""
    out, section = {}, None
    for line in unit.read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            out.setdefault((section, key), []).append(value)
    return out


def test_units_say_what_matters():
    service = settings(SERVICE)
    expected = {
        "Type": "oneshot",
        "User": "irt-dask",
        "Restart": "on-failure",
        "RestartPreventExitStatus": "2",
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "PrivateTmp": "yes",
        "CapabilityBoundingSet": "",
    }
    for key, value in expected.items():
        assert service["Service", key] == [value], key
    assert ("Service", "MemoryMax") in service
    assert ("Service", "MemoryDenyWriteExecute") not in service  # numba could not compile
    timer = settings(SERVICE.with_suffix(".timer"))
    assert timer["Timer", "Persistent"] == ["true"]
    assert ("Timer", "RandomizedDelaySec") in timer
    assert timer["Install", "WantedBy"] == ["timers.target"]


def test_service_writes_where_it_may():
    service = settings(SERVICE)
    config = read_scoring(SERVICE.with_name("nightly.toml"))
    (state,), (cache,) = service["Service", "StateDirectory"], service["Service", "CacheDirectory"]
    assert Path(config.scoring.out).is_relative_to(f"/var/lib/{state}")
    for line in service["Service", "Environment"]:
        assert Path(line.partition("=")[2]).is_relative_to(f"/var/cache/{cache}")
    memory = float(config.cluster.memory.removesuffix("GB")) * 1e9
    (limit,) = service["Service", "MemoryMax"]
    assert config.cluster.workers * memory < 0.75 * int(limit.removesuffix("G")) * 2**30


def verify(folder, *units):
    environment = {"PATH": os.environ["PATH"], "SYSTEMD_UNIT_PATH": f"{folder}:"}
    return subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(str(folder / u) for u in units)],
        capture_output=True, text=True, timeout=60, env=environment,
    )  # fmt: skip


def test_systemd_accepts_the_units(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here")
    timer = SERVICE.with_suffix(".timer")
    text = SERVICE.read_text()
    runnable, n = re.subn(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", text)  # must exist
    assert n == 1
    (tmp_path / SERVICE.name).write_text(runnable)
    shutil.copy(timer, tmp_path)
    done = verify(tmp_path, SERVICE.name, timer.name)
    assert done.returncode == 0, done.stderr
    assert not [line for line in done.stderr.splitlines() if SERVICE.stem in line]
    (tmp_path / SERVICE.name).write_text(runnable.replace("ProtectHome=yes", "ProtectHomes=yes"))
    assert "ProtectHomes" in verify(tmp_path, SERVICE.name).stderr


# --- cron, scripts --------------------------------------------------------------------------------


def crontab():
    """The time fields and the command of the one line."""
    lines = (CLUSTER / "cron" / "irt-dask.crontab").read_text().splitlines()
    (line,) = [x for x in lines if x and not x.startswith("#") and not re.match(r"\w+=", x)]
    *when, command = line.split(None, 5)
    return when, command


def test_crontab_has_a_time_and_no_percent_sign():
    when, command = crontab()
    assert len(when) == 5
    assert all(re.fullmatch(r"[\d*,/-]+", field) for field in when)
    assert "%" not in command  # cron makes it a new line


@pytest.fixture
def night(tmp_path):
    """Run the crontab's command where a stand-in for irt-dask ends with a given code."""
    if shutil.which("flock") is None:
        pytest.skip("flock (util-linux) is not here")
    program = tmp_path / "irt-dask"

    def night(code):
        program.write_text(f'#!/bin/sh\necho "$@"\necho trouble >&2\nexit {code}\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        command = crontab()[1].replace("/opt/irt_dask/bin/irt-dask", str(program))
        command = command.replace("cd /var/lib/irt-dask", f"cd {tmp_path}")
        assert "/var/lib" not in command
        return subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=30)

    return night


def test_cron_is_silent_after_a_good_night_only(night, tmp_path):
    done = night(0)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    log = tmp_path / "scoring.log"
    assert log.read_text() == "run /etc/irt-dask/nightly.toml --quiet\ntrouble\n"
    for code in (1, 2):
        said = night(code).stdout
        assert f"exit code {code}" in said
        assert said.endswith("trouble\n")
    assert log.read_text().count("trouble") == 3


def test_cron_does_not_start_a_second_run(night, tmp_path):
    import fcntl

    with open(tmp_path / "scoring.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "exit code 75" in night(0).stdout
    assert (tmp_path / "scoring.log").read_text() == ""
    assert night(0).stdout == ""


def test_shell_scripts_parse(tmp_path):
    script = tmp_path / "crontab.sh"
    script.write_text(crontab()[1])
    for path in [script, *folder_of(".sh", ".sbatch")]:
        done = subprocess.run(["bash", "-n", path], capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, f"{path}: {done.stderr}"


def test_readmes_link_to_what_is_there():
    """Of the folders of cluster/; the table of cluster/README.md names them all."""
    table = (CLUSTER / "README.md").read_text()
    for folder in (p for p in CLUSTER.iterdir() if p.is_dir()):
        assert f"({folder.name}/)" in table
        text = (folder / "README.md").read_text()
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
            assert (folder / target).exists(), f"{folder.name}/README.md: {target}"
