# Sourced by the other scripts: makes .venv in the checkout and installs the package into it.
# Usage: prepare_environment [EXTRA]

cd "$(dirname "${BASH_SOURCE[0]}")/.."

find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11; do
        if [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 &&
            "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "Python 3.11 or newer is needed, and none was found" \
        "($(python3 --version 2>&1 || echo 'no python3')). Install one, or name it: PYTHON=/path/to/python3.11 bash $0" >&2
    return 1
}

prepare_environment() {
    local extra=${1:-} python wanted installed
    if ! .venv/bin/python -c 'import pip' >/dev/null 2>&1; then
        python=$(find_python) || exit 1
        echo "making .venv with $("$python" --version)" >&2
        rm -rf .venv
        "$python" -m venv .venv
    fi
    # What was installed last is noted beside it, so that a second run starts at once.
    wanted="$(cat pyproject.toml constraints.txt | cksum) $extra"
    installed=$(cat .venv/installed 2>/dev/null || true)
    if [ "$wanted" != "$installed" ]; then
        echo "installing into .venv (a few minutes the first time)" >&2
        .venv/bin/python -m pip install --quiet --disable-pip-version-check \
            -c constraints.txt -e ".${extra:+[$extra]}"
        echo "$wanted" >.venv/installed
    fi
}
