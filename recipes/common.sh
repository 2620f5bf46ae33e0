# shellcheck shell=bash
# Sourced by the recipes: goes to the checkout, finds the commands, and reads what the environment says:
#   SCALE    smoke (seconds, texts and pictures that every machine has), small (two CPU cores; the default) or paper
#            (wants a GPU)
#   DEVICE   auto (the default), cpu or cuda
#   SEEDS    one run each; 1111 for text and 1 2 3 for pictures unless said
#   RESULTS  where results go, in a folder of the scale's name; results/ of the checkout unless said
# A run that is there already, made by the very same command, is not repeated; an interrupted one goes on.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
bin="${HEBBLM_BIN:-$PWD/.venv/bin}"
if [[ ! -x "$bin/hebblm-eval" ]]; then
    make .venv/.cpu
fi
export PATH="$bin:$PATH"

SCALE="${SCALE:-small}"
DEVICE="${DEVICE:-auto}"
RESULTS="${RESULTS:-results}/$SCALE"
case "$SCALE" in
smoke) options=(--preset tiny --max-tokens 200 --k 20 --device "$DEVICE") ;;
small) options=(--preset small --device "$DEVICE") ;;
paper) options=(--preset paper --device "$DEVICE") ;;
*)
    echo "SCALE=$SCALE must be smoke, small or paper" >&2
    exit 2
    ;;
esac

# Some recipes keep what they find under recipes/, which the pages are written from. At smoke they keep nothing there.
# shellcheck disable=SC2034
if [[ "$SCALE" == smoke ]]; then
    out="$RESULTS" kept="$RESULTS/kept" smaller=("${options[@]}")
    mkdir -p "$kept"
else
    out="${RESULTS%/*}" kept=recipes smaller=()
fi

few() { # WORDS...: all of them, at smoke the first
    if [[ "$SCALE" == smoke ]]; then echo "$1"; else echo "$*"; fi
}

pages() { # write the committed JSON small and the pages anew
    if [[ "$SCALE" != smoke ]]; then
        python -m recipes.compact
        python -m recipes.readme_results
    fi
}

have() { # FILE COMMAND...: whether FILE says that the command was run to its end
    python -S recipes/finished.py "$@" && echo "have $1"
}

run() { # FILE COMMAND...: unless the command was run to its end
    have "$@" || "${@:2}"
}

# shellcheck disable=SC2034
everything=(--methods all --log-samples) # of the runs whose tables the book opens with, and whose tokens frequency.sh reads

evaluate() { # NAME VALUES ARGUMENTS...: hebblm-eval with the default values or the paper's, once a seed
    local name="$1" seed interval=()
    if [[ "$2" == paper ]]; then interval=(--update-every 100); fi
    for seed in ${SEEDS:-1111}; do
        run "$(folder "$name" "$seed")/result.json" hebblm-eval "${@:3}" "${options[@]}" "${interval[@]}" --hyperparameters "$2" \
            --seed "$seed" --output-path "$(folder "$name" "$seed")"
    done
}

folder() { # NAME SEED
    if [[ "$2" == 1111 ]]; then echo "$RESULTS/$1"; else echo "$RESULTS/$1-seed$2"; fi
}

show() { # NAME RUNS...: tables of all seeds of some runs, beside the paper's
    local name="$1" run seed runs=()
    for run in "${@:2}"; do
        for seed in ${SEEDS:-1111}; do runs+=("$(folder "$run" "$seed")"); done
    done
    hebblm-report "${runs[@]}" --output-path "$RESULTS/report-$name"
    study paper "${runs[@]}"
}

study() { # ARGUMENTS...: the book, cost, results beside the paper, and what it leaves open
    python -m recipes.study "$@"
}

sizes() { # KIND: at smoke, sizes at which a measurement of cost takes seconds and says nothing
    if [[ "$SCALE" != smoke ]]; then return; fi
    case "$1" in
    adapt) echo --dim 32 --vocabulary 500 --neighbors 8 --entries 500 --steps 1 --k 20 --batch 20 --heads ;;
    retrieve) echo --dim 32 --entries 1000 --index exact --k 20 --batch 20 --recall-queries 20 ;;
    eval)
        echo --arch awd_lstm_tiny --vocabulary 500 --memory-sizes 500 --k 20 --tokens 100 --currency-tokens 50 \
            --stream-tokens 400 --streams 2
        ;;
    train) echo --preset tiny --vocabulary 500 --segments 1 ;;
    esac
}

chapter() { # TITLE BOOK: one chapter of a book in Markdown
    sed -n "/^## $1/,/^## /{/^## $1/p;/^## /!p;}" "$2"
}

corpora() { # names of the corpora that are evaluated within their own domain
    if [[ "$SCALE" == smoke ]]; then echo pydoc; else echo ptb wt2; fi
}

corpus() { # NAME: how a command is told of a corpus
    if [[ "$SCALE" != smoke ]]; then
        echo "$1"
        return
    fi
    if [[ ! -f "$RESULTS/text/$1.txt" ]]; then
        python recipes/smoke_text.py "$RESULTS/text"
    fi
    echo "text:$RESULTS/text/$1.txt"
}

# shellcheck disable=SC2034
across() { # the scenario across domains: its options in the array "across", its name in "pair"
    if [[ "$SCALE" == smoke ]]; then
        pair=pydoc-to-numpy
        across=(--source "$(corpus pydoc)" --target "$(corpus numpy)")
    else
        pair=wt2-to-ptb
        across=(--cross-domain "$pair")
    fi
}

backbones() { # EXPERIMENT: with the paper's three networks at its scale, with one network otherwise
    local backbone
    if [[ "$SCALE" != paper ]]; then
        vision "$1" "$1"
        return
    fi
    for backbone in resnet50 densenet121 mobilenetv2; do
        vision "$1" "$1-$backbone" --backbone "$backbone"
    done
}

vision() { # EXPERIMENT NAME ARGUMENTS...: hebblm-vision, which prints its tables beside the paper's, or its report
    local place="$RESULTS/$2" seeds command
    read -r -a seeds <<<"${SEEDS:-$([[ "$SCALE" == smoke ]] && echo 1 || echo 1 2 3)}"
    command=(hebblm-vision "$1" --scale "$SCALE" "${@:3}" --seeds "${seeds[@]}" --device "$DEVICE")
    command+=(--output-path "$place")
    if ! have "$place/result.json" "${command[@]}"; then
        "${command[@]}"
    elif [[ -f "$place/report.md" ]]; then
        cat "$place/report.md"
    else # a result that ships comes without its report
        study book "$place" --output-path "$RESULTS/report-$2"
        chapter Images "$RESULTS/report-$2/book.md"
    fi
}
