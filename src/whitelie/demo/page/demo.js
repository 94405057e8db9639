// The page: settings first, then the shop, the device, and the two tables.

import { notify } from "/dashboard/element.js";
import { startDevice } from "./device.js";
import { startLearning } from "./learning.js";

const byId = (id) => document.getElementById(id);
const settings = await (await fetch("/demo/settings")).json();

byId("admin").textContent = settings.admin;
byId("dashboard").href = `/#/experiments/${settings.experiment}`;
byId("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(settings.admin);
  notify("Copied.");
});
byId("shortened").textContent =
  `A click counts for ${settings.window} seconds and a report leaves within another ${settings.spread}, so that ` +
  "you can watch it. Minutes or hours are usual, and a device refuses a spread below 30 seconds unless its page " +
  "says otherwise, as this one does. Your report leaves while you watch, by a timer (sending: “when-due”), which is " +
  "honest where a click does not leave the page, as here; by default it waits for your next visit, so that its time " +
  "does not tell how long you stayed. Everything else is as in production: the service, its store, both clients, the " +
  "coin, and the limit of ε = 10 in 24 hours on your device.";

startDevice(settings);
startLearning(settings);
