# Sourced by scripts that run a list of steps, all of them even when one fails, and say at the end
# which did.

steps_failed=()
steps_started=$SECONDS

# step NAME COMMAND [ARGUMENT]...
step() {
    local name=$1 started=$SECONDS
    shift
    printf '\n== %s\n' "$name"
    if "$@"; then
        printf '== %s: ok, %d s\n' "$name" $((SECONDS - started))
    else
        printf '== %s: FAILED, %d s\n' "$name" $((SECONDS - started))
        steps_failed+=("$name")
    fi
}

# steps_end WHAT: the closing line; its status is the script's.
steps_end() {
    local took=$((SECONDS - steps_started))
    if [ ${#steps_failed[@]} -eq 0 ]; then
        printf '\n%s: everything passed in %d s\n' "$1" "$took"
        return 0
    fi
    local list
    list=$(printf '%s, ' "${steps_failed[@]}")
    printf '\n%s: FAILED after %d s: %s\n' "$1" "$took" "${list%, }"
    return 1
}
