# Sourced by scripts that run a list of steps, all of them even when one fails, and say at the end
# which did, with the last lines that each of those printed.

steps_failed=()
steps_took=()
steps_started=$SECONDS
steps_logs=$(mktemp -d)
trap 'rm -rf "$steps_logs"' EXIT

# step NAME COMMAND [ARGUMENT]...
step() {
    local name=$1 started=$SECONDS
    shift
    printf '\n== %s\n' "$name"
    local status=0 out copy waited
    exec {out}> >(tee "$steps_logs/$name")
    copy=$!
    "$@" >&"$out" 2>&1 {out}>&- || status=$?
    exec {out}>&-
    # A process that the step left behind may hold the output open for good, so the copy has two seconds to end.
    for ((waited = 0; waited < 40; waited++)); do
        kill -0 "$copy" 2>/dev/null || break
        sleep 0.05
    done
    steps_took+=("$(printf '%6d s  %s' $((SECONDS - started)) "$name")")
    if [ "$status" -eq 0 ]; then
        printf '== %s: ok, %d s\n' "$name" $((SECONDS - started))
    else
        printf '== %s: FAILED, %d s\n' "$name" $((SECONDS - started))
        steps_failed+=("$name")
    fi
}

# steps_end WHAT: what took longest, and the closing line; its status is the script's.
steps_end() {
    local took=$((SECONDS - steps_started))
    printf '\n== what took longest\n'
    printf '%s\n' "${steps_took[@]}" | sort -rn | head -n 12
    if [ ${#steps_failed[@]} -eq 0 ]; then
        printf '\n%s: everything passed in %d s\n' "$1" "$took"
        return 0
    fi
    local list name
    for name in "${steps_failed[@]}"; do
        printf '\n== %s, its last lines again\n' "$name"
        tail -n 40 "$steps_logs/$name"
    done
    list=$(printf '%s, ' "${steps_failed[@]}")
    printf '\n%s: FAILED after %d s: %s\n' "$1" "$took" "${list%, }"
    return 1
}
