#!/usr/bin/env bash
# Boots a Gleaner worker: fetches the worker bundle and the Python environment by their sha256, and starts the agent.
#
# The script is the same for every VM and reads all settings of the VM from its metadata server. Every boot may run the script. A boot
# reaches the metadata server, worker-api and the bucket, and nothing else. Heartbeats name its step. A boot that fails sends its reason to
# worker-api and its log to the bucket of logs; otherwise the agent sends the log.
#
# A node's metadata holds this file alone. `source` only defines its functions and those of `python-environment.sh`; the `gleaner`
# command uses `make_environment DIR LOCK_FILE`.
#
# Environment (all optional):
#   GLEANER_HOME           folder of all files (default /opt/gleaner)
#   GCE_METADATA_HOST      host:port of the metadata server (default metadata.google.internal); set on the local cloud alone
#   STORAGE_EMULATOR_HOST  endpoint of Cloud Storage (default: Google's)
#   GLEANER_PLATFORM       tpu or cpu (default: tpu, which requires a TPU)
#   GLEANER_ENVIRONMENTS   folder of the Python environments (default $GLEANER_HOME)
#   UV_CACHE_DIR           folder of the packages that jobs download (default $GLEANER_HOME/uv-cache)
set -Eeuo pipefail
shopt -s inherit_errexit 2>/dev/null || true # bash 3.2 of macOS lacks this option; commands that must succeed end with `|| fail`

readonly HEARTBEAT_S=5
# Rights of root that the agent has no use for. It needs the others: it starts jobs as other users in namespaces with mounts and limits of
# their own, ends their processes, owns their files, closes the metadata server to them, and opens the chips.
readonly DROPPED='CAP_SYS_MODULE CAP_SYS_BOOT CAP_SYS_TIME CAP_SYSLOG CAP_AUDIT_CONTROL CAP_AUDIT_READ CAP_MAC_ADMIN CAP_MAC_OVERRIDE CAP_WAKE_ALARM CAP_BLOCK_SUSPEND CAP_SYS_PACCT CAP_SYS_TTY_CONFIG CAP_NET_BIND_SERVICE CAP_NET_BROADCAST CAP_LEASE'
# worker-api gets tokens: https, or http to this machine alone. The agent and the configuration of the functions accept the same.
readonly API_FORM='^(https://[A-Za-z0-9._-]+|http://(127(\.[0-9]{1,3}){3}|localhost|\[::1\]))(:[0-9]{1,5})?(/[A-Za-z0-9._~%/+-]*)?$'

say() {
  printf '%s startup: %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$*" >&2
}

REASON=''
fail() {
  REASON=$*
  say "$*"
  exit 1
}

# open_log: copies standard error to the log of this host, to which the agent appends too. Descriptor 3 is the console.
# Each line opens the file anew, so that a disk that was full for a while loses only the lines of that time.
open_log() {
  local kept
  kept=$(tail -n 1000 "$GLEANER_HOME/host.log" 2>/dev/null) || true
  (umask 077 && { [[ -z $kept ]] || printf '%s\n' "$kept"; } > "$GLEANER_HOME/host.log") || true
  exec 3>&2
  exec 2> >(
    trap '' TERM INT
    while IFS= read -r line || [[ -n $line ]]; do
      printf '%s\n' "$line" >&3 || true
      { printf '%s\n' "$line" >> "$GLEANER_HOME/host.log"; } 2>/dev/null || true
    done
  )
}

# metadata PATH...: prints values, one a line. Waits for the start of the server. Ends at an absent value with status 22.
# curl reads the address and tokens from standard input, because other users of a machine see the arguments of a command.
metadata() {
  printf 'url = "%s"\n' "${@/#/http://${GCE_METADATA_HOST:-metadata.google.internal}/computeMetadata/v1/}" |
    curl -fsS --fail-early --noproxy '*' --retry 8 --retry-connrefused --max-time 10 -H 'Metadata-Flavor: Google' --write-out '\n' --config -
}

# require NAME VALUE REGEX: checks a value that later becomes a part of URLs and JSON.
require() {
  [[ $2 =~ $3 ]] || fail "Failed to start: metadata attribute $1 is '$2', which does not match $3"
}

# read_metadata: reads and checks the attributes.
read_metadata() {
  local name value values status=0
  local names=(agent-worker-number gleaner-worker gleaner-incarnation gleaner-ticket gleaner-api gleaner-bucket gleaner-bundle gleaner-logs-bucket)
  values=$(metadata "${names[@]/#/instance/attributes/}" 2>/dev/null) || status=$?
  [[ $status == 0 || $status == 22 ]] || fail "Failed to start: the metadata server does not answer (curl: $status)"
  for name in "${names[@]}"; do
    # An old curl may write an empty line before each retry.
    while IFS= read -r value && [[ -z $value ]]; do :; done
    [[ -n $value ]] || fail "Failed to start: metadata attribute $name is missing; create the VM again with it set"
    case $name in
      agent-worker-number) require "$name" "$value" '^[0-9]{1,6}$'; WORKER_NUMBER=$value ;;
      gleaner-worker) require "$name" "$value" '^[a-z][a-z0-9-]{0,62}$'; WORKER=$value ;;
      gleaner-incarnation) require "$name" "$value" '^[0-9]{1,18}$'; INCARNATION=$value ;;
      gleaner-ticket) require "$name" "$value" '^[A-Za-z0-9_-]{43}$'; TICKET=$value ;;
      gleaner-api) require "$name" "$value" "$API_FORM"; API=$value ;;
      gleaner-bucket) require "$name" "$value" '^[a-z0-9][a-z0-9._-]{1,221}$'; BUCKET=$value ;;
      gleaner-bundle) require "$name" "$value" '^[0-9a-f]{64}$'; BUNDLE=$value ;;
      gleaner-logs-bucket) require "$name" "$value" '^[a-z0-9][a-z0-9._-]{1,221}$'; LOGS_BUCKET=$value ;;
    esac
  done <<< "$values"
  WHO="\"worker\":\"$WORKER\",\"incarnation\":$INCARNATION,\"host\":$WORKER_NUMBER"
  HELLO="{\"action\":\"hello\",$WHO,\"ticket\":\"$TICKET\"}"
}

# make_secret: makes the secret of this host, which every request to worker-api carries. A reboot keeps the secret: worker-api
# accepts one for each life of a VM. The agent reads the file.
make_secret() {
  local file="$GLEANER_HOME/host-secret"
  SECRET=''
  [[ ! -O $file ]] || { chmod 600 "$file" && SECRET=$(cat "$file"); } || SECRET=''
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

# enter_step STEP: names the step of the boot, which heartbeats report.
enter_step() {
  say "Step of the boot: $1"
  printf '%s\n' "$1" 2>/dev/null > "$GLEANER_HOME/boot-step" || true
}

heartbeat() {
  local step
  step=$(cat "$GLEANER_HOME/boot-step" 2>/dev/null) || true
  printf '{"action":"heartbeat",%s,"phase":"setup","step":"%s","lease":null,"progress":null}' "$WHO" "${step:-start}"
}

# beat PID: says hello, and then sends heartbeats until the process PID ends. Ends the process PID when worker-api answers `exit`.
# A heartbeat that is refused repeats the hello once, because a restored database may not know the secret.
beat() {
  local parent=$1 answer status before=200 repeated=no is_bound=no body
  # The sleep below runs in the background, because bash handles a signal only after the foreground command.
  trap 'kill $(jobs -p) 2>/dev/null; exit' TERM
  trap - ERR
  while kill -0 "$parent" 2>/dev/null; do
    if [[ $is_bound == yes ]]; then body=$(heartbeat); else body=$HELLO; fi
    answer=$(ask "$body")
    status=${answer##*$'\n'} answer=${answer%$'\n'*}
    [[ $status == "$before" ]] || say "The answer of worker-api is: $status"
    before=$status
    if [[ $status =~ ^(200|403)$ && $answer =~ \"action\":\ ?\"exit\" ]]; then
      if [[ $status == 403 && $is_bound == yes && $repeated == no ]]; then is_bound=no repeated=yes; continue; fi
      say "Stopping: worker-api says that this VM is not wanted any more: ${answer:0:500}"
      kill -TERM "$parent"
      return
    fi
    if [[ $is_bound == no && $answer =~ \"action\":\ ?\"continue\" ]]; then is_bound=yes; continue; fi
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

# leave: ends a boot that started no agent. A boot that was told to end, or that a preemption ends, has no failure to report.
leave() {
  local status=$? end tries
  trap - EXIT ERR TERM
  stop_beating
  [[ $status != 0 ]] || return 0
  end="The boot ends with status $status"
  say "$end"
  # The lines pass through the process of `open_log`.
  for tries in {1..20}; do
    [[ $(tail -n 1 "$GLEANER_HOME/host.log" 2>/dev/null) != *"$end" ]] || break
    sleep 0.1
  done
  [[ $status == 143 || $(metadata instance/preempted 2>/dev/null) == TRUE ]] || report_failure "$status" || true
  ship_log || true
  exit "$status"
}

# report_failure STATUS: sends the reason of the failure to worker-api, after a hello where worker-api does not know the secret yet.
report_failure() {
  local reason=$REASON body answer tries
  [[ -n $reason ]] || reason=$(sed -n 's/^[^ ]* startup: \(Failed .*\)/\1/p' "$GLEANER_HOME/host.log" 2>/dev/null | tail -n 1) || true
  reason=$(printf '%s' "${reason:-startup.sh ended with status $1}" | LC_ALL=C tr -c '\040-\176' ' ' | cut -c 1-2000)
  reason=${reason//\\//}
  reason=${reason//\"/\'}
  body="{\"action\":\"setup-failed\",$WHO,\"reason\":\"$reason\"}"
  for tries in 1 2 3; do
    answer=$(ask "$body")
    case $answer in
      *200) return ;;
      *403) ask "$HELLO" > /dev/null ;;
      *) sleep "$tries" ;;
    esac
  done
  say "Failed to report the failure of the boot: the answer of worker-api is ${answer##*$'\n'}"
}

# ship_log: writes the last 200 lines of the log to the object of this host and incarnation, as the agent does. worker-api gives the token.
ship_log() {
  local token host=${WORKER_NUMBER#0} name
  name="$INCARNATION${host:+.$host}.log"
  token=$(ask "{\"action\":\"token\",$WHO,\"lease\":null}" | token_in)
  [[ -n $token ]] || { say "Failed to store this log: worker-api gives no token"; return 1; }
  tail -n 200 "$GLEANER_HOME/host.log" |
    curl -fsS --retry 3 --max-time 20 -o /dev/null -H 'Content-Type: application/x-ndjson' -H @<(bearer "$token") --data-binary @- \
      "$(storage_endpoint)/upload/storage/v1/b/$LOGS_BUCKET/o?uploadType=media&name=logs%2F$WORKER%2F$name" ||
    say "Failed to store this log as gs://$LOGS_BUCKET/logs/$WORKER/$name: see curl's message above"
}

access_token() {
  metadata instance/service-accounts/default/token | token_in
}

# token_in: prints the access token of an answer.
token_in() {
  sed -n 's/.*"access_token" *: *"\([^"]*\)".*/\1/p'
}

# bearer TOKEN: prints the header of a request. Other users see the arguments of curl, so curl reads the header from a pipe.
bearer() {
  printf 'Authorization: Bearer %s\n' "$1"
}

storage_endpoint() {
  printf '%s' "${STORAGE_EMULATOR_HOST:-https://storage.googleapis.com}"
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

# download FOLDER SHA256 FILE: downloads the archive SHA256 of a folder of the bucket, unless FILE has it. Continues a transfer that broke
# off, also in an earlier boot.
download() {
  local object="$1/$2.tar.gz" file=$3 token code status tries url found wrong=''
  url="$(storage_endpoint)/storage/v1/b/$BUCKET/o/$1%2F$2.tar.gz?alt=media"
  for tries in {1..8}; do
    token=$(access_token) || fail "Failed to fetch gs://$BUCKET/$object: the metadata server gives no token"
    status=0
    code=$(curl -fsS --connect-timeout 10 --speed-limit 1000 --speed-time 60 --continue-at - -o "$file" -H @<(bearer "$token") \
      --write-out '%{http_code}' "$url") || status=$?
    # 416: the file was complete before.
    if [[ $status == 0 || $code == 416 ]]; then
      found=$(sha256_of "$file")
      if [[ $found == "$2" ]]; then
        [[ $code == 416 ]] || count_received "$(wc -c < "$file")"
        return 0
      fi
      rm -f "$file"
      [[ $found != "$wrong" ]] || fail "Failed to use gs://$BUCKET/$object: its sha256 is $found"
      wrong=$found
    fi
    case $status in
      # 33: the server sent the whole object instead of the rest.
      33) rm -f "$file" ;;
      23) rm -f "$file"; fail "Failed to write gs://$BUCKET/$object to $file: see curl's message above" ;;
    esac
    [[ $code != 404 ]] || fail "Failed to fetch gs://$BUCKET/$object: the bucket has no such object; deploy again"
    say "Failed to fetch gs://$BUCKET/$object (curl: $status, answer: $code); trying again"
    [[ $tries == 8 ]] || sleep $((tries < 5 ? 2 ** (tries - 1) : 16))
  done
  rm -f "$file"
  fail "Failed to fetch gs://$BUCKET/$object in 8 attempts (curl: $status, answer: $code)"
}

# count_received BYTES: adds bytes from the bucket to the file that the agent continues: storage/downloads.py says what its line has.
count_received() {
  local incarnation=0 nat=0 bucket=0 other=0
  read -r incarnation nat bucket other < "$GLEANER_HOME/received" || true
  [[ $incarnation == "$INCARNATION" ]] || nat=0 bucket=0 other=0
  printf '%s %s %s %s\n' "$INCARNATION" "$nat" "$((bucket + $1))" "$other" > "$GLEANER_HOME/received" || true
} 2>/dev/null

# require_space FOLDER BYTES: fails early on a disk that has no room for an archive of this size and for its files.
require_space() {
  local needed=$(($2 * 4 / 1048576)) free
  free=$(($(df -Pk "$1" | tail -n 1 | tr -s ' ' | cut -d ' ' -f 4) / 1024)) || return 0
  ((free >= needed)) || fail "Failed to make room for the environment: $1 has $free MiB free, and $needed MiB are needed"
}

# unpack ARCHIVE FOLDER: unpacks a verified archive into the new folder, which appears whole or not at all. tar refuses members that lead
# out of the folder, and puts absolute paths below it.
unpack() {
  local unfinished="$2.unfinished.$$"
  clear_unfinished "$2"
  mkdir -p "$unfinished" || fail "Failed to make $unfinished"
  if ! tar -xzf "$1" --no-same-owner --no-same-permissions -C "$unfinished"; then
    rm -rf "$unfinished" "$1"
    fail "Failed to unpack $1: see tar's message above"
  fi
  if has_foreign_member "$unfinished"; then
    rm -rf "$unfinished"
    fail "Failed to unpack $1: it holds something that is no file, no folder and no link inside of it"
  fi
  rm -f "$1"
  publish "$unfinished" "$2"
}

# has_foreign_member FOLDER: true for devices and pipes, and for links that lead out of the folder.
has_foreign_member() {
  local link folder
  [[ -z $(find "$1" ! -type f ! -type d ! -type l -print) ]] || return 0
  folder=$(cd "$1" && pwd -P)
  while IFS= read -r link; do
    [[ $(readlink -f "$link") == "$folder"/* ]] || return 0
  done < <(find "$1" -type l)
  return 1
}

# fetch_bundle: fetches the worker bundle by its sha256 where it is missing, and prints its folder.
fetch_bundle() {
  local folder="$GLEANER_HOME/bundle-$BUNDLE"
  if [[ ! -d $folder ]]; then
    download bundles "$BUNDLE" "$GLEANER_HOME/bundle.tar.gz"
    unpack "$GLEANER_HOME/bundle.tar.gz" "$folder"
  fi
  printf '%s\n' "$folder"
}

# fetch_environment BUNDLE_FOLDER: fetches the Python environment that the bundle names where it is missing, and prints its folder.
# The local cloud names no archive: its VMs share environments of the machine.
fetch_environment() {
  local key sha256 size folder
  [[ -f $1/environment ]] || fail "Failed to start: the worker bundle $BUNDLE names no environment"
  read -r key sha256 size < "$1/environment" || true
  [[ "$key $sha256 $size" =~ ^[0-9a-f]{16}\ ([0-9a-f]{64}|-)\ [0-9]{1,12}$ ]] ||
    fail "Failed to start: the worker bundle $BUNDLE names the environment '$key $sha256 $size'"
  folder="${GLEANER_ENVIRONMENTS:-$GLEANER_HOME}/env-$key"
  if [[ ! -x $folder/bin/python3 ]]; then
    [[ $sha256 != - ]] || fail "Failed to start: there is no environment $folder; start the local cloud again"
    require_space "$GLEANER_HOME" "$size"
    download environments "$sha256" "$GLEANER_HOME/environment.tar.gz"
    unpack "$GLEANER_HOME/environment.tar.gz" "$folder"
  fi
  printf '%s\n' "$folder"
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

# is_vm: true on a VM of Google, and false on the local cloud.
is_vm() {
  [[ -z ${GCE_METADATA_HOST:-} && $EUID == 0 ]]
}

# close_metadata: lets only root reach the metadata server, which gives tokens of the worker's account. Port 53 is the DNS server of a VM.
close_metadata() {
  local program address rule
  while read -r program address; do
    [[ $program == iptables || -s /proc/net/if_inet6 ]] || continue
    rule=(OUTPUT -d "$address" -p tcp ! --dport 53 -m owner --uid-owner 1-4294967294 -j REJECT)
    "$program" -w 10 -C "${rule[@]}" 2>/dev/null || "$program" -w 10 -I "${rule[@]}" ||
      say "Users of this VM reach the metadata server: $program fails. The agent runs no job before it is closed to the job"
  done <<< $'iptables 169.254.0.0/16\nip6tables fd20:ce::254/128'
}

# allow_huge_pages: large buffers of a host in huge pages load models faster.
allow_huge_pages() {
  local file=/sys/kernel/mm/transparent_hugepage/enabled
  [[ ! -w $file ]] || printf 'always\n' 2>/dev/null > "$file" || say "Failed to write $file"
}

has_systemd() {
  is_vm && [[ -d /run/systemd/system ]] && command -v systemd-run > /dev/null
}

# start_agent PYTHON: becomes the agent. Under systemd the agent is a unit of its own: a stop of the startup script's unit does not end the
# agent, and a shutdown gives it time. The unit lacks rights of root that neither the agent nor a start of a job needs.
start_agent() {
  local name settings=()
  if has_systemd; then
    for name in GLEANER_HOME UV_CACHE_DIR JAX_COMPILATION_CACHE_DIR JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS JAX_PLATFORMS \
      PYTHONPATH PYTHONSAFEPATH HOME PATH; do
      [[ -z ${!name:-} ]] || settings+=("--setenv=$name=${!name}")
    done
    if systemd-run --quiet --collect --unit=gleaner-agent --service-type=exec "${settings[@]}" \
      --property=KillMode=mixed --property=TimeoutStopSec=90 --property=OOMPolicy=continue --property=TasksMax=infinity \
      --property=LimitNOFILE=1048576 --property=LimitMEMLOCK=infinity --property=After=network-online.target \
      --property=Delegate=yes --setenv=GLEANER_CGROUP_DELEGATED=1 \
      --property="CapabilityBoundingSet=~$DROPPED" "$1" -m gleaner_worker.agent; then
      exit 0
    fi
    say 'Failed to start the unit gleaner-agent: the agent runs in the unit of this script'
  fi
  exec "$1" -m gleaner_worker.agent 2>&3 3>&-
}

main() {
  local command bundle environment platform error
  # The user of jobs reads the bundle and the environment, also on an image with a strict umask.
  umask 022
  for command in curl tar sed find readlink; do
    command -v "$command" >/dev/null || fail "Failed to start: $command is not installed"
  done
  export GLEANER_HOME="${GLEANER_HOME:-/opt/gleaner}"
  export UV_CACHE_DIR="${UV_CACHE_DIR:-$GLEANER_HOME/uv-cache}"
  mkdir -p "$GLEANER_HOME" "$UV_CACHE_DIR"
  if has_systemd && systemctl is-active --quiet gleaner-agent; then
    say 'The agent runs already'
    return
  fi
  open_log
  enter_step metadata
  read_metadata
  trap leave EXIT
  trap 'exit 143' TERM
  trap 'say "Failed to start: line $LINENO of startup.sh ended with status $?: $BASH_COMMAND"' ERR
  make_secret
  start_beating
  ! is_vm || close_metadata
  platform=$(platform) || exit 1
  [[ $platform != tpu ]] || allow_huge_pages
  enter_step bundle
  bundle=$(fetch_bundle) || exit 1
  enter_step environment
  environment=$(fetch_environment "$bundle") || exit 1
  enter_step agent
  unset PYTHONDONTWRITEBYTECODE
  # Compiled programs survive a reboot and a restart of the agent.
  export JAX_COMPILATION_CACHE_DIR="${JAX_COMPILATION_CACHE_DIR:-$GLEANER_HOME/jax-cache}"
  export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0
  export JAX_PLATFORMS=$platform PYTHONPATH=$bundle PYTHONSAFEPATH=1
  # An agent that cannot be imported leaves no evidence. The next boots of a host import what the first one did.
  if [[ ! -e $environment/imported-$BUNDLE ]]; then
    error=$("$environment/bin/python3" -c 'import gleaner_worker.agent.agent' 2>&1) ||
      fail "Failed to import the agent with $environment/bin/python3: ${error##*$'\n'}"
    : > "$environment/imported-$BUNDLE"
  fi
  say "Starting the agent of $WORKER, incarnation $INCARNATION, on $platform"
  stop_beating
  trap - EXIT ERR TERM
  start_agent "$environment/bin/python3"
}

# `source` (also in `bash -c 'source …'`) only defines functions.
if [[ ${BASH_SOURCE[0]:-$0} == "$0" ]]; then
  main "$@"
else
  # shellcheck source=/dev/null
  source "$(dirname "${BASH_SOURCE[0]}")/python-environment.sh"
fi
