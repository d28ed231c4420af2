# Sourced by the scripts beside it: makes .venv in the repository root, or brings it up to date.
# Nothing is done when nothing has changed since the last time.

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
venv="$root/.venv"

say() { printf '== %s\n' "$*" >&2; }

# Prints the first Python of at least 3.10 that can make a virtual environment; only $PYTHON is tried where it is set.
find_python() {
  local name names=(python3 python python3.13 python3.12 python3.11 python3.10)
  [ -z "${PYTHON:-}" ] || names=("$PYTHON")
  for name in "${names[@]}"; do
    if "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; then
      printf '%s\n' "$name"
      return
    fi
  done
  say "No Python of at least 3.10 that can make a virtual environment was found${PYTHON:+: PYTHON is $PYTHON}."
  say "Install one (on Debian and Ubuntu: apt install python3 python3-venv), or name it: PYTHON=/path/to/python3 $0"
  return 1
}

# What the installation depends on, as one line: change any of it, and it is done again.
fingerprint() {
  (
    cd "$root"
    printf '%s %s\n' "$root" "$("$venv/bin/python" --version)"
    find pygsage -name '*.py' | LC_ALL=C sort  # the editable installation keeps a list of modules
    cat pyproject.toml tools/constraints.txt tools/venv.sh
    cat pygsage/native/CMakeLists.txt pygsage/native/*.h pygsage/native/*.cpp
  ) | cksum
}

# ensure_venv run: what is needed to run; ensure_venv dev: what the checks need as well.
ensure_venv() {
  local wanted="$1" target="$root" stamp="$venv/pygsage-installed" mark quiet=""
  [ "$wanted" = run ] || target="$root[$wanted]"
  [ -t 2 ] || quiet="-qq"  # errors only

  # A venv that was moved, or whose making was interrupted, is made anew.
  if ! "$venv/bin/python" -c 'import os, sys, pip; sys.exit(not os.path.samefile(sys.prefix, sys.argv[1]))' "$venv" \
    >/dev/null 2>&1; then
    local python
    python="$(find_python)"
    say "Making .venv with $("$python" --version)"
    "$python" -m venv --clear "$venv"
  fi

  mark="$(fingerprint)"
  if [ -f "$stamp" ] && { [ "$(cat "$stamp")" = "$mark dev" ] || [ "$(cat "$stamp")" = "$mark $wanted" ]; }; then
    return
  fi
  rm -f "$stamp"
  say "Installing torch and what builds the native core"
  install $quiet torch scikit-build-core nanobind cmake ninja
  say "Installing pygsage with its native core, and what it needs"
  # The build tools are those just installed, pinned like the rest, hence no isolation.
  install $quiet --no-build-isolation --editable "$target"
  say "$("$venv/bin/python" -c 'from pygsage import native
print("The native core is built." if native.core else f"No native core, the slow reference sampler serves: {native.load_error}")')"
  printf '%s %s\n' "$mark" "$wanted" >"$stamp"
}

install() {
  "$venv/bin/python" -m pip install --disable-pip-version-check --constraint "$root/tools/constraints.txt" "$@" >&2
}
