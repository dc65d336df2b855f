#!/usr/bin/env bash
# What the working tree does to the CUDA text of every example, against a commit: tools/diff.sh BASE PYTHON
# An empty answer is what a change that calls itself a refactor has to show.
set -euo pipefail

base=${1:-main}
python=${2:-python3}
root=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
case $python in */*) python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python") ;; esac

work=$(mktemp -d)
trap 'git -C "$root" worktree remove --force "$work/base" 2>/dev/null || true; rm -rf "$work"' EXIT
git -C "$root" worktree add --quiet --detach "$work/base" "$base"

sources() { # the tree to take the package and the examples from, the folder to write to
    (cd "$1" && PYTHONPATH="$1" "$python" "$root/tools/sources.py" "$2")
}
sources "$work/base" "$work/before"
sources "$root" "$work/after"

if diff --unified --recursive --new-file "$work/before" "$work/after"; then
    echo "the CUDA text is that of $base"
fi
