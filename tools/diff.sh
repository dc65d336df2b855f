#!/usr/bin/env bash
# The difference of the CUDA text of every kernel between a commit and the working tree: tools/diff.sh BASE PYTHON
# A change that calls itself a refactor has to show an empty difference.
set -euo pipefail

base=${1:-main}
python=${2:-python3}
root=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
case $python in */*) python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python") ;; esac

work=$(mktemp -d)
trap 'git -C "$root" worktree remove --force "$work/base" 2>/dev/null || true; rm -rf "$work"' EXIT
git -C "$root" worktree add --quiet --detach "$work/base" "$base"

sources() { # the tree, whose own program writes its kernels, and the folder to write to
    (cd "$1" && PYTHONPATH="$1" "$python" tools/sources.py "$2")
}
sources "$work/base" "$work/before"
sources "$root" "$work/after"

if diff --unified --recursive --new-file "$work/before" "$work/after"; then
    echo "the CUDA text is that of $base"
fi
