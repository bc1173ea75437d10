#!/usr/bin/env bash
# Boots a Gleaner worker: fetches the worker bundle by its sha256, makes a Python environment from a lock file with hashes, and
# starts the agent.
#
# The script is the same for every VM and reads all settings of the VM from its metadata server. Every boot may run the script.
# A node's metadata holds this file alone; `python-environment.sh` comes with the bundle.
# `source` only defines the functions of both files; the `gleaner` command uses `make_environment DIR LOCK_FILE`.
#
# Environment (all optional):
#   GLEANER_HOME           folder of all files (default /opt/gleaner)
#   GCE_METADATA_HOST      host:port of the metadata server (default metadata.google.internal)
#   STORAGE_EMULATOR_HOST  endpoint of Cloud Storage (default: Google's)
#   GLEANER_PLATFORM       tpu or cpu (default: tpu, which requires a TPU)
#   GLEANER_ENVIRONMENTS   folder of the Python environments (default $GLEANER_HOME)
#   UV_CACHE_DIR           folder of the downloaded packages (default $GLEANER_HOME/uv-cache)
set -Eeuo pipefail
shopt -s inherit_errexit 2>/dev/null || true # bash 3.2 of macOS lacks this option; commands that must succeed end with `|| fail`

readonly HEARTBEAT_S=5
# worker-api gets tokens: https, or http to this machine alone. The agent and the configuration of the functions accept the same.
readonly API_FORM='^(https://[A-Za-z0-9._-]+|http://(127(\.[0-9]{1,3}){3}|localhost|\[::1\]))(:[0-9]{1,5})?(/[A-Za-z0-9._~%/+-]*)?$'

say() {
  printf '%s startup: %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$*" >&2
}

fail() {
  say "$*"
  exit 1
}

# metadata PATH: prints one value. Waits for the start of the server; status 22 stands for an absent value.
# curl reads the address and tokens from standard input, because other users of a machine see the arguments of a command.
metadata() {
  curl -fsS --noproxy '*' --retry 8 --retry-connrefused --max-time 10 -H 'Metadata-Flavor: Google' --config - \
    <<< "url = \"http://${GCE_METADATA_HOST:-metadata.google.internal}/computeMetadata/v1/$1\""
}

attribute() {
  local value status=0
  value=$(metadata "instance/attributes/$1" 2>/dev/null) || status=$?
  # curl exits with 22 after a 404.
  [[ $status == 0 || $status == 22 ]] || fail "Failed to start: the metadata server does not answer (curl: $status)"
  [[ -n $value ]] || fail "Failed to start: metadata attribute $1 is missing; create the VM again with it set"
  printf '%s' "$value"
}

# require NAME VALUE REGEX: checks a value that later becomes a part of URLs and JSON.
require() {
  [[ $2 =~ $3 ]] || fail "Failed to start: metadata attribute $1 is '$2', which does not match $3"
}

read_metadata() {
  local name value
  for name in agent-worker-number gleaner-worker gleaner-incarnation gleaner-ticket gleaner-api gleaner-bucket gleaner-bundle; do
    value=$(attribute "$name") || exit 1
    case $name in
      agent-worker-number) require "$name" "$value" '^[0-9]{1,6}$'; WORKER_NUMBER=$value ;;
      gleaner-worker) require "$name" "$value" '^[a-z][a-z0-9-]{0,62}$'; WORKER=$value ;;
      gleaner-incarnation) require "$name" "$value" '^[0-9]{1,18}$'; INCARNATION=$value ;;
      gleaner-ticket) require "$name" "$value" '^[A-Za-z0-9_-]{43}$'; TICKET=$value ;;
      gleaner-api) require "$name" "$value" "$API_FORM"; API=$value ;;
      gleaner-bucket) require "$name" "$value" '^[a-z0-9][a-z0-9._-]{1,221}$'; BUCKET=$value ;;
      gleaner-bundle) require "$name" "$value" '^[0-9a-f]{64}$'; BUNDLE=$value ;;
    esac
  done
}

# make_secret: makes the secret of this host, which every request to worker-api carries. A reboot keeps the secret: worker-api
# accepts one for each life of a VM. The agent reads the file.
make_secret() {
  local file="$GLEANER_HOME/host-secret"
  SECRET=''
  [[ ! -O $file ]] || { chmod 600 "$file" && SECRET=$(cat "$file"); } || fail "Failed to read $file"
  if [[ ! $SECRET =~ ^[0-9a-f]{64}$ ]]; then
    SECRET=$(od -An -N 32 -tx1 /dev/urandom | tr -d ' \n') || fail 'Failed to make the secret of this host'
    (umask 077 && rm -f "$file.$$" && printf '%s\n' "$SECRET" > "$file.$$" && mv -f "$file.$$" "$file") ||
      fail "Failed to write $file"
  fi
}

# ask BODY: prints the answer of worker-api to a request of this host, and in the last line the status, or why there is none.
# Other users see the arguments of a command, so curl reads all of the request from standard input.
ask() {
  local audience token
  audience=$(printf '%s' "$API" | od -An -v -tx1 | tr -d ' \n' | sed 's/../%&/g') # percent-encoded
  token=$(metadata "instance/service-accounts/default/identity?audience=$audience&format=full" 2>/dev/null) ||
    { printf '\nnone, because the metadata server gives no identity token'; return; }
  curl -sS --max-time 10 --config - 2>/dev/null <<CONFIG || printf '\nnone (curl: %s)' "$?"
url = "$API"
header = "Content-Type: application/json"
header = "Authorization: Bearer $token"
header = "X-Gleaner-Secret: $SECRET"
data = "${1//\"/\\\"}"
write-out = "\n%{http_code}"
CONFIG
}

# beat PID: says hello, and then sends heartbeats until the process PID ends. Ends the process PID when worker-api answers `exit`.
# A heartbeat that is refused repeats the hello once, because a restored database may not know the secret.
beat() {
  local parent=$1 answer status before=200 repeated=no who hello heartbeat body
  # The sleep below runs in the background, because bash handles a signal only after the foreground command.
  trap 'kill $(jobs -p) 2>/dev/null; exit' TERM
  who=$(printf '"worker":"%s","incarnation":%s,"host":%s' "$WORKER" "$INCARNATION" "$WORKER_NUMBER")
  hello="{\"action\":\"hello\",$who,\"ticket\":\"$TICKET\"}"
  heartbeat="{\"action\":\"heartbeat\",$who,\"phase\":\"setup\",\"lease\":null,\"progress\":null}"
  body=$hello
  while kill -0 "$parent" 2>/dev/null; do
    answer=$(ask "$body")
    status=${answer##*$'\n'} answer=${answer%$'\n'*}
    [[ $status == "$before" ]] || say "The answer of worker-api is: $status"
    before=$status
    if [[ $status =~ ^(200|403)$ && $answer =~ \"action\":\ ?\"exit\" ]]; then
      if [[ $status == 403 && $body == "$heartbeat" && $repeated == no ]]; then body=$hello repeated=yes; continue; fi
      say "Stopping: worker-api says that this VM is not wanted any more: ${answer:0:500}"
      kill -TERM "$parent"
      return
    fi
    if [[ $body == "$hello" && $answer =~ \"action\":\ ?\"continue\" ]]; then body=$heartbeat; continue; fi
    [[ $status != 200 ]] || repeated=no
    sleep "$HEARTBEAT_S" &
    wait "$!"
  done
}

BEAT_PID=''
start_beating() {
  beat "$$" &
  BEAT_PID=$!
}

stop_beating() {
  [[ -z $BEAT_PID ]] || kill "$BEAT_PID" 2>/dev/null || true
  BEAT_PID=''
}

sha256_of() {
  if command -v sha256sum >/dev/null; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -d ' ' -f 1
}

# publish FROM TO: renames a finished folder atomically. Keeps a folder TO that another process has published first.
publish() {
  # -T refuses to move into an existing folder. An mv without -T relies on the test before it.
  if [[ -e $2 ]] || ! { mv -T "$1" "$2" || { [[ ! -e $2 ]] && mv "$1" "$2"; }; } 2>/dev/null; then
    [[ -e $2 ]] || fail "Failed to move $1 to $2"
    rm -rf "$1"
  fi
}

# clear_unfinished PATH: removes the unfinished folders of killed attempts to make PATH.
clear_unfinished() {
  local left
  for left in "$1".unfinished.*; do
    [[ ! -e $left ]] || kill -0 "${left##*.}" 2>/dev/null || rm -rf "$left"
  done
}

# fetch_bundle: fetches the worker bundle by its sha256 where it is missing, and prints its folder.
fetch_bundle() {
  local folder="$GLEANER_HOME/bundle-$BUNDLE" storage archive token unfinished
  if [[ ! -d $folder ]]; then
    archive="$GLEANER_HOME/bundle.$$.tar.gz"
    unfinished="$folder.unfinished.$$"
    token=$(metadata instance/service-accounts/default/token | sed -n 's/.*"access_token" *: *"\([^"]*\)".*/\1/p')
    storage="${STORAGE_EMULATOR_HOST:-https://storage.googleapis.com}/storage/v1"
    curl -fsS --retry 5 --retry-connrefused --max-time 300 -H @- -o "$archive" \
      "$storage/b/$BUCKET/o/bundles%2F$BUNDLE.tar.gz?alt=media" <<< "Authorization: Bearer $token" ||
      fail "Failed to fetch the worker bundle gs://$BUCKET/bundles/$BUNDLE.tar.gz: see curl's message above"
    [[ $(sha256_of "$archive") == "$BUNDLE" ]] ||
      fail "Failed to use the worker bundle $BUNDLE: its sha256 is $(sha256_of "$archive")"
    refuse_unsafe_archive "$archive"
    clear_unfinished "$folder"
    mkdir -p "$unfinished"
    tar -xzf "$archive" --no-same-owner --no-same-permissions -C "$unfinished" || fail "Failed to unpack $archive"
    rm -f "$archive"
    publish "$unfinished" "$folder"
  fi
  printf '%s\n' "$folder"
}

refuse_unsafe_archive() {
  local members names
  # grep reads variables, not a pipe from tar: grep ends at its first match, which would fail tar and the pipe.
  members=$(tar -tvzf "$1") || fail "Failed to list $1: see tar's message above"
  names=$(tar -tzf "$1") || fail "Failed to list $1: see tar's message above"
  ! grep -qv '^[-d]' <<< "$members" || fail "Failed to unpack $1: it holds something that is no file or folder"
  ! grep -qE '^/|(^|/)\.\.(/|$)' <<< "$names" || fail "Failed to unpack $1: it holds a path that leads out of it"
}

# platform: prints tpu or cpu. Fails on a VM without a TPU device, because extraction on its CPU would be slow and unnoticed.
platform() {
  if [[ -n ${GLEANER_PLATFORM:-} ]]; then
    printf '%s\n' "$GLEANER_PLATFORM"
  elif [[ -e /dev/accel0 || -e /dev/vfio ]]; then
    printf 'tpu\n'
  else
    fail 'Failed to start: this VM has no TPU (no /dev/accel0, no /dev/vfio); set GLEANER_PLATFORM=cpu to work without one'
  fi
}

main() {
  local command bundle lock python platform
  # The user of jobs reads the bundle and the environment, also on an image with a strict umask.
  umask 022
  for command in curl tar sed; do
    command -v "$command" >/dev/null || fail "Failed to start: $command is not installed"
  done
  export GLEANER_HOME="${GLEANER_HOME:-/opt/gleaner}"
  export UV_CACHE_DIR="${UV_CACHE_DIR:-$GLEANER_HOME/uv-cache}"
  mkdir -p "$GLEANER_HOME" "$UV_CACHE_DIR"
  read_metadata
  make_secret
  trap stop_beating EXIT
  trap 'exit 143' TERM
  start_beating
  platform=$(platform) || exit 1
  bundle=$(fetch_bundle) || exit 1
  [[ -f $bundle/python-environment.sh ]] || fail "Failed to start: the worker bundle $BUNDLE holds no python-environment.sh"
  # shellcheck source=/dev/null
  source "$bundle/python-environment.sh"
  lock="$bundle/requirements.lock"
  [[ $platform != tpu ]] || lock="$bundle/requirements-tpu.lock"
  python=$(make_environment "${GLEANER_ENVIRONMENTS:-$GLEANER_HOME}/env-$(lock_sha256 "$lock" | cut -c 1-16)" "$lock") || exit 1
  say "Starting the agent of $WORKER, incarnation $INCARNATION, on $platform"
  stop_beating
  trap - EXIT TERM
  unset PYTHONDONTWRITEBYTECODE
  # Compiled programs survive a reboot and a restart of the agent.
  export JAX_COMPILATION_CACHE_DIR="${JAX_COMPILATION_CACHE_DIR:-$GLEANER_HOME/jax-cache}"
  export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0
  export JAX_PLATFORMS=$platform PYTHONPATH=$bundle PYTHONSAFEPATH=1
  exec "$python" -m gleaner_worker.agent
}

# `source` (also in `bash -c 'source …'`) only defines functions.
if [[ ${BASH_SOURCE[0]:-$0} == "$0" ]]; then
  main "$@"
else
  # shellcheck source=/dev/null
  source "$(dirname "${BASH_SOURCE[0]}")/python-environment.sh"
fi
