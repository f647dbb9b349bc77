# Sourced by the other scripts: makes .venv in the checkout and installs the package into it. An
# environment that it did not make is used only if its owner allows it.
# Usage: prepare_environment [EXTRA]

started_in=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# PATH: print it as an absolute one; relative paths begin where the script was started.
absolute() {
    case $1 in
        /*) echo "$1" ;;
        *) echo "$started_in/$1" ;;
    esac
}

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

# A .venv without pip is replaced only if this script made it, which the mark in it shows. The mark is
# written first, so that the next call repairs an interrupted one.
make_environment() {
    local python mark=.venv/made_by_seq2seq
    if [ -e .venv ] || [ -L .venv ]; then
        if [ ! -e "$mark" ]; then
            echo ".venv: pip can't be imported in it, and this script didn't make it: repair it" \
                "(python -m ensurepip), or move it away and run this again" >&2
            exit 1
        fi
        rm -rf .venv
    fi
    python=$(find_python) || exit 1
    echo "making .venv with $("$python" --version)" >&2
    mkdir .venv
    : >"$mark"
    "$python" -m venv .venv
}

prepare_environment() {
    local extra=${1:-} sum installed
    .venv/bin/python -c 'import pip' >/dev/null 2>&1 || make_environment
    if [ ! -e .venv/made_by_seq2seq ] && [ ! -e .venv/installed ]; then
        echo ".venv: this script didn't make it, and would install seq2seq${extra:+ and its development" \
            "tools} into it: move it away, or allow that (touch .venv/installed), and run this again" >&2
        exit 1
    fi
    # What was installed last and from where: a second run starts at once, unless the checkout was moved
    # or copied.
    sum="$(cat pyproject.toml constraints.txt | cksum) $PWD"
    installed=$(cat .venv/installed 2>/dev/null || true)
    # With an extra, all that the package needs without one is there.
    if [ "$installed" != "$sum $extra" ] && { [ -n "$extra" ] || [ "${installed% *}" != "$sum" ]; }; then
        echo "installing into .venv (a few minutes the first time)" >&2
        .venv/bin/python -m pip install --quiet --disable-pip-version-check \
            -c constraints.txt -e ".${extra:+[$extra]}"
        echo "$sum $extra" >.venv/installed
    fi
}
