// Elements of the page: to find them, to make them, to move between them by arrow keys.

export const find = (id) => document.getElementById(id);

export const make = (tag, properties = {}) =>
  Object.assign(document.createElement(tag), properties);

/** Let the arrow keys move between the buttons of a container, which is one stop of the Tab key. */
export function useArrowKeys(container) {
  container.addEventListener("keydown", (event) => {
    const buttons = buttonsOf(container);
    const right = getComputedStyle(container).direction === "rtl" ? -1 : 1;
    const steps = { ArrowRight: right, ArrowLeft: -right, ArrowDown: 1, ArrowUp: -1 };
    const ends = { Home: 0, End: buttons.length - 1 };
    const from = buttons.indexOf(document.activeElement);
    const to = buttons[ends[event.key] ?? from + steps[event.key]];
    if (from < 0 || !to) return;
    event.preventDefault();
    to.focus();
  });
  container.addEventListener("focusin", (event) => setTabStop(container, event.target));
}

/** Let the Tab key stop at one button of a container, by default the first. */
export function setTabStop(container, button = buttonsOf(container)[0]) {
  for (const other of buttonsOf(container)) other.tabIndex = other === button ? 0 : -1;
}

const buttonsOf = (container) => [...container.querySelectorAll("button, [role=button]")];
