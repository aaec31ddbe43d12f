// Keeps the dashboard current: fetches the same page and swaps the marked region. Stops while
// nobody looks or somebody has the focus inside, and asks less often after an error.
const EVERY = 10;
let failed = 0;

async function renew() {
  const live = document.querySelector("[data-guard-live]");
  if (document.visibilityState !== "visible" || live.contains(document.activeElement)) return;
  const answer = await fetch(location.href, { credentials: "same-origin" });
  if (!answer.ok || answer.redirected) throw new Error(String(answer.status));
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const fresh = page.querySelector("[data-guard-live]");
  if (fresh && fresh.innerHTML !== live.innerHTML) live.replaceChildren(...fresh.childNodes);
}

async function follow() {
  try {
    await renew();
    failed = 0;
  } catch {
    failed = Math.min(failed + 1, 5);
  }
  setTimeout(follow, EVERY * 1000 * 2 ** failed);
}

setTimeout(follow, EVERY * 1000);
