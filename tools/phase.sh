# For scripts of several phases: `source tools/phase.sh`, then phase NAME COMMAND... Each says its name, and the script ends with what
# each took, also where one failed.
phases=()
phase() {
  printf '\n== %s\n' "$1"
  local began=$SECONDS
  phases+=("$1: failed")
  "${@:2}"
  phases[-1]="$(printf '%5d s  %s' $((SECONDS - began)) "$1")"
}
trap 'printf "\n== what each phase of %s took\n" "$0"; printf "%s\n" "${phases[@]}"' EXIT
