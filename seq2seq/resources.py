"""Where `conf/` and the embedded corpus are: in the checkout, or inside the installed package."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def resource_folder(name: str) -> Path:
    """The folder `conf` or `data`: beside the package in a checkout, `resources/` in a wheel."""
    checkout = _PACKAGE.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / name).is_dir():
        return checkout / name
    return _PACKAGE / "resources" / name
