"""The folders `conf` and `data`, in a checkout or inside the installed package."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def resource_folder(name: str) -> Path:
    """Find the folder `conf` or `data`: in a checkout beside the package, in a wheel inside it."""
    checkout = _PACKAGE.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / name).is_dir():
        return checkout / name
    return _PACKAGE / "resources" / name
