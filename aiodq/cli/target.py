"""From `MODULE:WORKER`, as the user wrote it, to the worker it names, or to a message that helps.

Modules are looked for in the working directory first, as `python -m` does. What goes wrong inside the user's
own module is shown with the place in it, not with a traceback through this program.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from types import ModuleType

from aiodq import AiodqError, ConfigError, Queue, Worker

_EXAMPLE = "write MODULE:WORKER, like shop.worker:worker"


def load_worker(target: str) -> Worker:
    """The worker that `target` names.

    Raises: `ConfigError` if the words are not of that form, there is no such module or name, importing the
    module fails, or what it names is no worker.
    """
    module_name, colon, attribute = target.partition(":")
    if "/" in module_name or "\\" in module_name or module_name.endswith(".py"):
        dotted = module_name.removesuffix(".py").lstrip("./\\").replace("/", ".").replace("\\", ".")
        raise ConfigError(f"{target!r} looks like a file; write the module: {dotted}:{attribute or 'worker'}")
    if not colon or not module_name or not attribute:
        raise ConfigError(f"{target!r} names no worker; {_EXAMPLE}")
    return _worker_in(_import(module_name), module_name, attribute)


def _import(name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise ConfigError(
                f"there is no module {error.name!r} in {here} nor among the installed packages"
            ) from error
        raise _broken(name, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from error


def _broken(name: str, error: BaseException) -> ConfigError:
    """What is wrong in the user's module, and where."""
    what = f"importing {name!r} failed: {type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):
        return ConfigError(
            f"importing {name!r} failed: {''.join(traceback.format_exception_only(error)).strip()}"
        )
    # The import machinery's frames and, for our own errors, this library's, say nothing to the user.
    hidden = ["importlib", "<frozen", os.path.dirname(__file__)]
    if isinstance(error, AiodqError):
        hidden.append(os.path.dirname(os.path.dirname(__file__)))
    places = [
        f"  {frame.filename}:{frame.lineno}: {frame.line}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not any(part in frame.filename for part in hidden)
    ]
    return ConfigError("\n".join([what, *places]))


def _worker_in(module: ModuleType, module_name: str, attribute: str) -> Worker:
    found: object = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ConfigError(
                f"module {module_name!r} has no {attribute!r}; {_others(module, attribute)}"
            ) from None
    if isinstance(found, Worker):
        return found
    if isinstance(found, Queue):
        what = f"{module_name}:{attribute} is a Queue, and the command runs a Worker"
        if _workers(module):
            raise ConfigError(f"{what}; {_others(module, 'worker')}")
        raise ConfigError(f"{what}: add `worker = Worker({attribute})` and name that")
    raise ConfigError(
        f"{module_name}:{attribute} is no Worker but {_described(found)}; {_others(module, attribute)}"
    )


def _described(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return "a function" if callable(value) else f"an object of type {type(value).__name__}"


def _workers(module: ModuleType) -> list[str]:
    return sorted(name for name, value in vars(module).items() if isinstance(value, Worker))


def _others(module: ModuleType, attribute: str) -> str:
    """What else the user may have meant."""
    workers = _workers(module)
    if not workers:
        return "it holds no Worker at all: make one with `worker = Worker(queue)`"
    near = difflib.get_close_matches(attribute, workers, n=1)
    return f"did you mean {near[0]!r}?" if near else f"it holds: {', '.join(workers)}"
