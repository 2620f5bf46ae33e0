#!/usr/bin/env bash
# Writes docs.txt and code.txt: this project's pages and hebblm/adapt, as they were at one commit.
set -euo pipefail
commit=e209536
files() { git ls-tree -r --name-only "$commit" "$1" | grep "$2\$" | LC_ALL=C sort; }
{
    git show "$commit:docs/methods.md"
    files docs .md | grep -v docs/methods.md | while read -r file; do git show "$commit:$file"; done
} > docs.txt
files hebblm/adapt .py | while read -r file; do git show "$commit:$file"; done > code.txt
