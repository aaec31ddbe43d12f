// Keeps every [data-guard-job] of a page current: asks its address again when the server says so,
// and puts what has changed in its place. Pauses while nobody looks.
const LONGEST = 60;

function isSeen() {
  return document.visibilityState === "visible";
}

function seen() {
  if (isSeen()) return Promise.resolve();
  return new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
}

function pause(seconds) {
  return new Promise((resolve) => setTimeout(resolve, seconds * 1000));
}

async function newest(url) {
  const answer = await fetch(url, { headers: { Accept: "text/html" }, credentials: "same-origin" });
  if (!answer.ok) throw new Error(String(answer.status));
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  return page.querySelector("[data-guard-job]");
}

function put(old, now) {
  const focused = old.contains(document.activeElement) ? document.activeElement.tagName : null;
  const word = old.querySelector(".guard-word");
  const said = old.querySelector("[role=status]");
  const fresh = now.querySelector("[role=status]");
  // The element that is read out stays, or a change of its text would be no change to a reader.
  if (word.textContent !== fresh.textContent) word.textContent = fresh.textContent;
  while (said.nextSibling) said.nextSibling.remove();
  while (fresh.nextSibling) old.append(fresh.nextSibling);
  old.className = now.className;
  if ("guardAfter" in now.dataset) old.dataset.guardAfter = now.dataset.guardAfter;
  else delete old.dataset.guardAfter;
  if (focused) old.querySelector(focused.toLowerCase())?.focus();
  if (document.body.classList.contains("guard-page")) document.title = word.textContent;
}

async function follow(job) {
  let failed = 0;
  while (job.isConnected && job.dataset.guardAfter) {
    await pause(Math.min(LONGEST, Number(job.dataset.guardAfter) * 2 ** failed));
    await seen();
    try {
      const now = await newest(job.dataset.guardJob);
      failed = 0;
      // Only what differs is touched, so that nothing flickers and no selection is lost.
      if (now && now.outerHTML !== job.guardSeen) put(job, now.cloneNode(true));
      if (now) job.guardSeen = now.outerHTML;
    } catch {
      failed = Math.min(failed + 1, 5);
    }
  }
}

document.querySelectorAll("[data-guard-job]").forEach(follow);
