// Elements from values. Text is always text: nothing here reads HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Return an element; a property that begins with "on" listens, children that are null are left out. */
export function el(name, properties = {}, ...children) {
  return filled(document.createElement(name), properties, children);
}

/** Return an element of a drawing. */
export function svg(name, properties = {}, ...children) {
  return filled(document.createElementNS(SVG, name), properties, children);
}

/** Set an element's text, if it is another. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Set attributes, those that are another; null and false remove one. */
export function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) element.removeAttribute(name);
    else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value === true ? "" : value);
  }
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else set(element, { [name]: value });
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

let notices;

/** Say for some seconds, at the foot of the page, what was done or why not. */
export function notify(text, isBad = false) {
  const notice = document.getElementById("notice");
  clearTimeout(notices);
  notice.textContent = text;
  notice.classList.toggle("bad", isBad);
  notices = setTimeout(() => (notice.textContent = ""), 8000);
}
