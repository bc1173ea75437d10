"""Runs the Python code of a job, as the job user: `run_job.py CODE_FILE REPORT_FILE STARTED_FILE PHASE_FILE ARGS`.

The script imports only the standard library and JAX, because the job's Python may lack the worker's packages.
Globals of the code: jax, jnp, logger and challenge_number. Its global `result` becomes the text in JOB_RESULT. The
report names the cause of a failure. STARTED_FILE appears when JAX has started: the timeout of the job begins then.
On several hosts PHASE_FILE says `waiting` while the code waits for the others, and `ended` after its end.

A child of multiprocessing by spawn or forkserver runs this script in place of the code's file, and finds these globals.
It uses no device and connects to no host unless the code does so.
"""

import json
import linecache
import logging
import os
import sys
import tempfile
import threading
import time
import traceback
import types
from multiprocessing import process, spawn
from typing import NoReturn

_PIECE_CHARS = 1 << 20
_MAX_ERROR_CHARS = 4000
_JOIN_S = int(os.environ["JOB_JOIN_S"])  # from the first host that calls to the last one
_HEARTBEAT_S = 30  # without a heartbeat, after which a host counts as lost
_SHUTDOWN_S = 7 * 86_400  # hosts that have ended wait for the others: the timeout of the job is the limit
_HOSTS = int(os.environ["JOB_HOSTS"])
_SAMPLE_S, _SAMPLES = 2.0, 5  # the same place in so many samples, one after the other, counts as a wait
_FUTEX = {"x86_64": "202", "aarch64": "98"}  # the system call of a native thread that waits for another one
_LOCKS = tuple(
    os.path.join(os.path.dirname(os.__file__), name) for name in ("threading.py", "queue.py", "selectors.py")
)


def main() -> None:
    began = time.monotonic()
    code_file, report_file, started_file, phase_file, *args = sys.argv[1:]
    name = f"<job {os.environ['JOB_ID']}>"
    sys.argv = [name, *args]
    try:
        import jax
        import jax.numpy as jnp
    except Exception as error:
        traceback.print_exc()
        _fail(report_file, "setup", f"Failed to import JAX: {_last_line(error)}")
    try:
        _join(jax.distributed, report_file)
        _check_tpu(jax, jnp)
        _check_hosts(jax, jnp)
        _accept_initialize(jax.distributed)
    except Exception as error:
        traceback.print_exc()
        # Every host has the libtpu of this environment, so no other host could do better.
        if isinstance(error, ImportError) or "Failed to open libtpu" in str(error):
            _fail(report_file, "setup", f"JAX finds no libtpu in this environment: {_last_line(error)}")
        _fail(report_file, "tpu", f"TPU not available: {_last_line(error)}")
    if os.path.samefile("/tmp", os.environ["TMPDIR"]):  # the path of a socket has at most 107 bytes
        settings = vars(process.current_process())["_config"]
        settings["tempdir"] = tempfile.mkdtemp(prefix="pymp-", dir="/tmp")
    module = types.ModuleType("__main__")
    code = _fill(module.__dict__, code_file, name)
    sys.modules["__main__"] = module
    open(started_file, "x").close()
    print(f"[gleaner] JAX started in {time.monotonic() - began:.1f} s", file=sys.stderr)
    ended = threading.Event()
    if _HOSTS > 1:
        threading.Thread(target=_report_waits, args=(phase_file, ended), daemon=True).start()
    try:
        exec(compile(code, name, "exec", dont_inherit=True), module.__dict__)
    except SystemExit as error:
        if error.code not in (None, 0):
            _exit(error)
    except BaseException as error:
        _print_traceback(error, name)
        _fail(report_file, "memory" if isinstance(error, MemoryError) else "exit", _last_line(error))
    ended.set()
    if os.environ["JOB_HOST"] == "0":  # the result is that of the first host
        _write_result(module.__dict__.get("result"), report_file, name)


def _fill(names: dict, code_file: str, name: str) -> str:
    """Gives a main module its globals, and returns the code."""
    import jax
    import jax.numpy as jnp

    with open(code_file, encoding="utf-8") as file:
        code = file.read()
    # Tracebacks find the lines of the code here, because no file has this name.
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    number = os.environ.get("CHALLENGE_NUMBER")
    names.update(jax=jax, jnp=jnp, logger=_make_logger(), challenge_number=int(number) if number else None)
    names.update(__file__=code_file, __builtins__=__builtins__)
    prepare, script = spawn.get_preparation_data, os.path.abspath(__file__)

    def prepare_child(name: str) -> dict:
        """Names this script as the main module of a child, whose code alone would lack its globals."""
        data = prepare(name)
        is_ours = data.get("init_main_from_path") == code_file
        return data | {"init_main_from_path": script} if is_ours else data

    spawn.get_preparation_data = prepare_child
    return code


def _become_code(names: dict) -> None:
    """Replaces the globals of this script by those of the code, and runs it, in a child of multiprocessing."""
    main: dict = {"__name__": names["__name__"]}
    name = f"<job {os.environ['JOB_ID']}>"
    code = _fill(main, os.path.join(os.path.dirname(os.environ["JOB_RESULT"]), "job.py"), name)
    _accept_initialize(main["jax"].distributed)
    names.clear()
    names.update(main)
    exec(compile(code, name, "exec", dont_inherit=True), names)


def _join(distributed, report_file: str) -> None:
    """Connects the processes of all hosts. JAX accepts this before its first use of a device alone."""
    if _HOSTS == 1:
        return
    try:
        distributed.initialize(
            os.environ["JAX_COORDINATOR_ADDRESS"],
            _HOSTS,
            int(os.environ["JOB_HOST"]),
            cluster_detection_method="deactivate",
            initialization_timeout=_JOIN_S,
            heartbeat_timeout_seconds=_HEARTBEAT_S,
            shutdown_timeout_seconds=_SHUTDOWN_S,
        )
    except Exception as error:
        traceback.print_exc()
        _fail(report_file, "machine", f"Failed to connect {_HOSTS} hosts: {_last_line(error)}")


def _check_tpu(jax, jnp) -> None:
    """Raises unless JAX finds a TPU and multiplies two matrices on it. A pool on CPU passes."""
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        return
    if not any(device.platform == "tpu" for device in jax.devices()):
        raise RuntimeError(f"JAX finds only {jax.devices()}")
    ones = jnp.ones((1000, 1000))
    jnp.dot(ones, ones).block_until_ready()


def _check_hosts(jax, jnp) -> None:
    """Raises unless a sum over the devices of all hosts is right."""
    if _HOSTS == 1:
        return
    count = jax.device_count()
    devices = jax.make_mesh((count,), ("devices",))
    split = jax.sharding.NamedSharding(devices, jax.sharding.PartitionSpec("devices"))
    ones = jax.make_array_from_callback((count,), split, lambda index: jnp.ones(1))
    if (total := int(jax.jit(jnp.sum)(ones))) != count or jax.process_count() != _HOSTS:
        raise RuntimeError(f"the sum of {count} ones over {jax.process_count()} of {_HOSTS} hosts is {total}")


def _accept_initialize(distributed) -> None:
    """Lets a bare `jax.distributed.initialize()` return: the hosts are connected, and JAX refuses a second call.

    In a child of multiprocessing it returns too: the hosts wait for their first processes alone.
    """
    initialize = distributed.initialize
    distributed.initialize = lambda *args, **named: initialize(*args, **named) if args or named else None


def _report_waits(phase_file: str, ended: threading.Event) -> None:
    """Tells by samples whether the main thread stands in native code that waits, as in a collective of JAX."""
    main, same, before = threading.main_thread().ident or 0, 0, None
    while not ended.wait(_SAMPLE_S):
        frame = sys._current_frames().get(main)
        place = frame and (id(frame), frame.f_lasti)
        same = same + 1 if place == before and _is_in_futex(frame) else 0
        before = place
        _write_phase(phase_file, "waiting" if same >= _SAMPLES else "")
    _write_phase(phase_file, "ended")


def _is_in_futex(frame: types.FrameType | None) -> bool:
    """False in a sleep, a read or a lock of Python: there the code itself decides to wait."""
    if frame is None or frame.f_code.co_filename in _LOCKS:
        return False
    try:
        with open(f"/proc/self/task/{os.getpid()}/syscall", encoding="ascii") as file:
            return file.read().split()[0] == _FUTEX.get(os.uname().machine)
    except OSError:
        return False


def _write_phase(phase_file: str, phase: str) -> None:
    with open(phase_file, "w", encoding="ascii") as file:
        file.write(phase)


def _make_logger() -> logging.Logger:
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("job")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return logger


def _print_traceback(error: BaseException, name: str) -> None:
    """Prints the traceback without the frames of this script."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != name:
        trace = trace.tb_next
    try:
        traceback.print_exception(type(error), error, trace)
    except BaseException:  # the methods of the error can raise
        print(_last_line(error), file=sys.stderr)


def _last_line(error: BaseException) -> str:
    try:
        return traceback.format_exception_only(type(error), error)[-1].strip()[:_MAX_ERROR_CHARS]
    except BaseException:
        return type(error).__name__


def _write_result(result: object, report_file: str, name: str) -> None:
    """Writes the result as UTF-8; None leaves no file. A lone surrogate becomes U+FFFD."""
    if result is None:
        return
    try:
        text = str(result)
        with open(os.environ["JOB_RESULT"], "wb") as file:
            for begin in range(0, len(text), _PIECE_CHARS):
                piece = text[begin : begin + _PIECE_CHARS]
                file.write(piece.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode())
    except BaseException as error:
        _print_traceback(error, name)
        kind = type(result).__name__
        _fail(report_file, "result", f"Failed to convert the result, a {kind}, to text: {_last_line(error)}")


def _fail(report_file: str, cause: str, error: str) -> NoReturn:
    with open(report_file, "w", encoding="utf-8", errors="replace") as file:
        json.dump({"cause": cause, "error": error}, file)
    _exit(SystemExit(1))


def _exit(error: SystemExit) -> NoReturn:
    """Ends the process. At a usual end JAX waits for all hosts, and these may wait for this host."""
    if _HOSTS == 1:
        raise error
    if not isinstance(error.code, int):
        print(error.code, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(error.code if isinstance(error.code, int) else 1)


if __name__ == "__main__":
    main()
elif __name__ == "__mp_main__":  # the name that multiprocessing gives the main module of a child
    _become_code(globals())
