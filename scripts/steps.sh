# Sourced by scripts that run a list of steps, all of them even when one fails, and say at the end
# which did, with the last lines that each of those printed.

declare -A steps_beside=()
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
    step_ended "$name" "$status" $((SECONDS - started))
}

# beside NAME COMMAND [ARGUMENT]...: begins a step that mostly waits, beside those that follow, until awaited.
beside() {
    local name=$1
    shift
    printf '\n== %s: begun, beside what follows\n' "$name"
    (
        started=$SECONDS status=0
        "$@" || status=$?
        echo "$status $((SECONDS - started))" >"$steps_logs/$name: end"
    ) >"$steps_logs/$name" 2>&1 </dev/null &
    steps_beside[$name]=$!
}

# awaited NAME: ends the step that was begun beside others, and prints what it did.
awaited() {
    local name=$1 status=1 took=0
    wait "${steps_beside[$name]}"
    unset "steps_beside[$name]"
    printf '\n== %s\n' "$name"
    cat "$steps_logs/$name"
    # One that was killed has no end.
    [ ! -e "$steps_logs/$name: end" ] || read -r status took <"$steps_logs/$name: end"
    step_ended "$name" "$status" "$took"
}

# step_ended NAME STATUS SECONDS
step_ended() {
    steps_took+=("$(printf '%6d s  %s' "$3" "$1")")
    if [ "$2" -eq 0 ]; then
        printf '== %s: ok, %d s\n' "$1" "$3"
    else
        printf '== %s: FAILED, %d s\n' "$1" "$3"
        steps_failed+=("$1")
    fi
}

# steps_end WHAT: what took longest, and the closing line; its status is the script's.
steps_end() {
    local name
    for name in "${!steps_beside[@]}"; do awaited "$name"; done
    local took=$((SECONDS - steps_started))
    printf '\n== what took longest\n'
    printf '%s\n' "${steps_took[@]}" | sort -rn | head -n 12
    if [ ${#steps_failed[@]} -eq 0 ]; then
        printf '\n%s: everything passed in %d s\n' "$1" "$took"
        return 0
    fi
    local list
    for name in "${steps_failed[@]}"; do
        printf '\n== %s, its last lines again\n' "$name"
        tail -n 40 "$steps_logs/$name"
    done
    list=$(printf '%s, ' "${steps_failed[@]}")
    printf '\n%s: FAILED after %d s: %s\n' "$1" "$took" "${list%, }"
    return 1
}
