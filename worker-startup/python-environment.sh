# shellcheck shell=bash
# Makes the Python environment that a lock file describes.
#
# `startup.sh` sources this file: on a VM from the worker bundle, elsewhere from its own folder. `startup.sh` defines `say`, `fail`,
# `sha256_of`, `publish` and `clear_unfinished`.

# find_python CHECK: prints the path of the first Python for which the Python expression CHECK is true. Looks into the folders of pyenv
# too, because its names on PATH run one version alone.
find_python() {
  local python code="import importlib.util, sys; $1 or sys.exit(1); print(sys.executable)"
  for python in python3.12 python3.13 python3.14 python3 "${PYENV_ROOT:-${HOME:-}/.pyenv}"/versions/*/bin/python3; do
    ! "$python" -c "$code" 2>/dev/null || return 0
  done
  return 1
}

# ensure_python UV: prints the path of a Python from 3.12 on. UV downloads one where none is found.
ensure_python() {
  local -x UV_PYTHON_INSTALL_DIR="$UV_CACHE_DIR/gleaner-python"
  find_python 'sys.version_info >= (3, 12)' && return
  say 'Downloading Python 3.12, because no Python here is as new'
  "$1" python install --no-progress --no-bin 3.12 >&2 ||
    fail 'Failed to download Python 3.12: install Python 3.12 or newer, or let this machine reach github.com'
  "$1" python find --managed-python 3.12
}

# ensure_uv LOCK: installs the locked uv where it is missing, and prints its path.
ensure_uv() {
  local lock=$1 folder python unfinished
  folder="$UV_CACHE_DIR/gleaner-uv-$(sha256_of "$lock" | cut -c 1-16)"
  if [[ ! -x $folder/bin/uv ]]; then
    python=$(find_python 'sys.version_info >= (3, 8) and importlib.util.find_spec("pip")') ||
      fail 'Failed to install uv: no Python here from 3.8 on has pip; install pip'
    unfinished="$folder.unfinished.$$"
    clear_unfinished "$folder"
    # An old pip ignores the variable, and refuses the option of this name.
    PIP_ROOT_USER_ACTION=ignore "$python" -m pip install --quiet --no-input --disable-pip-version-check \
      --no-deps --require-hashes --only-binary :all: --target "$unfinished" --requirement "$lock" >&2 ||
      fail 'Failed to install uv with pip: see the message above'
    publish "$unfinished" "$folder"
  fi
  open_to_jobs "$folder"
  printf '%s\n' "$folder/bin/uv"
}

# open_to_jobs FOLDER: lets the user of jobs read FOLDER and change nothing in it. FOLDER itself changes last, so that a killed
# call is repeated.
open_to_jobs() {
  [[ -n $(find "$1" -maxdepth 0 -perm -005 ! -perm -020 ! -perm -002) ]] || find "$1" -depth ! -type l -exec chmod u+rwX,go=rX {} +
}

# lock_text LOCK: prints a lock file, and the lock files that its lines `-r FILE` name.
lock_text() {
  local below
  cat "$1"
  sed -n 's/^-r //p' "$1" | while IFS= read -r below; do lock_text "$(dirname "$1")/$below"; done
}

# lock_sha256 LOCK: prints the hash that names the environment of a lock file.
lock_sha256() {
  lock_text "$1" | sha256_of -
}

# make_environment DIR LOCK_FILE: makes the Python environment DIR with exactly the packages of LOCK_FILE, unless DIR is complete.
# Prints the path of its python as the last line on stdout. A killed attempt never leaves a folder DIR.
# The user of jobs can read DIR and uv, whatever the umask of the caller. The folders above them may be private: a job sees both
# through its mount namespace.
# Installs wheels alone, because the build of a source package fetches and runs packages without a hash. A third argument
# `with-builds` permits builds, for tests.
make_environment() {
  local dir=$1 lock=$2 wanted python uv unfinished uv_lock options=(--quiet --require-hashes --no-build)
  [[ ${3:-} != with-builds ]] || options=(--quiet --require-hashes)
  [[ -f $lock ]] || fail "Failed to make $dir: there is no lock file $lock"
  uv_lock="$(dirname "$lock")/uv-requirements.lock"
  [[ -f $uv_lock ]] || uv_lock="$(dirname "${BASH_SOURCE[0]}")/uv-requirements.lock"
  [[ -f $uv_lock ]] || fail "Failed to make $dir: there is no uv-requirements.lock beside $lock"
  umask 022
  export UV_CACHE_DIR="${UV_CACHE_DIR:-${GLEANER_HOME:-/opt/gleaner}/uv-cache}"
  mkdir -p "$(dirname "$dir")" "$UV_CACHE_DIR"
  # Jobs use uv, also where the environment is complete.
  uv=$(ensure_uv "$uv_lock") || exit 1
  wanted=$(lock_sha256 "$lock")
  if [[ $(cat "$dir/lock-sha256" 2>/dev/null || true) != "$wanted" ]]; then
    python=$(ensure_python "$uv") || exit 1
    say "Making $dir from $lock with $python"
    clear_unfinished "$dir"
    unfinished="$dir.unfinished.$$"
    "$uv" venv --quiet --relocatable --python "$python" "$unfinished" >&2 ||
      fail "Failed to make $unfinished: see uv's message above"
    # The first attempt uses only the cache and no network. The hashes check every cached package.
    "$uv" pip sync --offline "${options[@]}" --python "$unfinished/bin/python" "$lock" 2>/dev/null ||
      "$uv" pip sync "${options[@]}" --python "$unfinished/bin/python" "$lock" >&2 ||
      fail "Failed to install what $lock names: see uv's message above"
    printf '%s\n' "$wanted" > "$unfinished/lock-sha256"
    # Cached packages keep the modes of an earlier umask.
    chmod -R u+rwX,go=rX "$unfinished"
    # Bytecode is valid for the time and the size of its source. One time keeps the bytecode of an earlier environment of this lock.
    TZ=UTC find "$unfinished" -name '*.py' -exec touch -t 198001010000 {} +
    [[ ! -e $dir ]] || mv "$dir" "$dir.unfinished.old.$$"
    publish "$unfinished" "$dir"
    rm -rf "$dir.unfinished.old.$$"
  fi
  open_to_jobs "$dir"
  printf '%s\n' "$dir/bin/python"
}
