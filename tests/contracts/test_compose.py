"""docker-compose.yml describes a site that can run: its commands, modules and variables exist."""

import importlib.util
import re

import pytest
import yaml

from tests.kit.ground import ROOT

EXAMPLE = ROOT / "example_project"
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}


def test_all_parts_of_a_site_are_there():
    """Both servers, the broker, the site, a worker per lane, relay, beat and Prometheus."""
    assert set(SERVICES) >= {
        *("postgres", "valkey", "rabbitmq", "web", "relay", "beat", "prometheus"),
        *(f"worker-{lane}" for lane in ("high", "medium", "low")),
    }


@pytest.mark.parametrize("name", sorted(OURS))
def test_every_command_exists(name):
    """A container's command names a module, an app or a management command that is there."""
    match OURS[name]["command"]:
        case ["python", "manage.py", command, *_]:
            assert (EXAMPLE / "manage.py").exists()
            assert list(ROOT.glob(f"*/**/management/commands/{command}.py"))
        case ["python", "-m", module, *_]:
            assert importlib.util.find_spec(module)
        case ["celery", "-A", app, ("worker" | "beat"), *_]:
            assert (EXAMPLE / app / "celery.py").exists()
        case other:
            pytest.fail(f"no such kind of command: {other}")


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_images_are_pinned_and_dependencies_known(name):
    """No image floats with `latest`; what is waited for exists and can say that it is healthy."""
    service = SERVICES[name]
    assert "build" in service or re.search(r":v?\d", service["image"])
    for other in service.get("depends_on", ()):
        assert other in SERVICES
    if isinstance(service.get("depends_on"), dict):
        for other, wish in service["depends_on"].items():
            assert wish["condition"] != "service_healthy" or "healthcheck" in SERVICES[other]


def test_variables_are_read_by_the_site():
    """Each variable that is set for the site is one that its settings read."""
    places = [*(EXAMPLE / "site_config").glob("*.py"), EXAMPLE / "deploy" / "settings.py"]
    settings = "".join(path.read_text() for path in places)
    assert [name for name in OURS["web"]["environment"] if name not in settings] == []


def test_ports_are_open_on_this_machine_only():
    """Passwords here are examples, so nothing listens to the outside."""
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert all(port.startswith("127.0.0.1:") for port in ports)
