# Sourced by the recipes: go to the checkout, find the commands.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin="${HEBBLM_BIN:-$PWD/.venv/bin}"
if [[ ! -x "$bin/hebblm-eval" ]]; then
    make .venv/.cpu
fi
export PATH="$bin:$PATH"
