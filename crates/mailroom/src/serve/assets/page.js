// What the page does beyond HTML; without this file everything works but by hand. It fetches the page's own URL again and
// swaps the parts whose HTML changed, moves by keys, copies, and chooses the theme. No address but the page's is asked, the
// clock is the server's, and what comes is parsed as a document, in which no script runs.
'use strict';

const html = document.documentElement;
const { root = '/', refresh = '0' } = document.body.dataset;
const find = (selector) => document.querySelector(selector);
const [live, liveText, pauseButton, help] = ['#live', '#live-text', '#pause', '#help'].map(find);
const FIELDS = 'input, select, textarea, [contenteditable]';
html.dataset.js = '';

// Live parts: elements with an id and data-live.

const every = Number(refresh) * 1000;
const partsOf = (tree) => [...tree.querySelectorAll('[data-live][id]')];
const sheetOf = (tree) => tree.querySelector('link[rel=stylesheet]')?.getAttribute('href');
// As the server wrote them, since the document's own may have an open <details>.
const written = new Map(partsOf(document).map((part) => [part.id, part.outerHTML]));
const touched = new WeakSet();
let [paused, pressed, failures, timer, running] = [false, false, 0, 0, null];

function say(state, words) {
    if (!live || live.dataset.state === state) return;
    live.dataset.state = state;
    liveText.textContent = words;
}

const sayLive = () => (paused ? say('paused', 'Updates are paused') : say('live', `Updates every ${every / 1000} s`));

// Whether something of it is being used, and would be lost.
function isUsed(part) {
    const chosen = getSelection();
    return touched.has(part)
        || (part.contains(document.activeElement) && document.activeElement.matches(FIELDS))
        || part.querySelector('details[open]') !== null
        || (!chosen.isCollapsed && chosen.containsNode(part, true));
}

// By which an element is found again in what takes its place, and those of a part with the same.
const keyOf = (element) => ['id', 'href', 'name', 'value', 'aria-label', 'data-copy'].map((name) => element.getAttribute(name))
    .concat(element.tagName, element.form?.getAttribute('action'), element.matches('button') ? element.textContent : '').join('\n');
const alike = (part, key) => [part, ...part.querySelectorAll('a, button, summary, [tabindex]')].filter((element) => keyOf(element) === key);

function swap(part, next) {
    const focused = part.contains(document.activeElement) ? document.activeElement : null;
    const key = focused && keyOf(focused);
    const at = focused && alike(part, key).indexOf(focused);
    const scrolled = [...part.querySelectorAll('.scroll')].map((box) => box.scrollLeft);
    const top = scrollY;
    part.replaceWith(document.adoptNode(next));
    next.querySelectorAll('.scroll').forEach((box, index) => { box.scrollLeft = scrolled[index] ?? 0; });
    if (focused) (alike(next, key)[at] ?? alike(next, key)[0])?.focus({ preventScroll: true });
    if (scrollY !== top) scrollTo({ top, behavior: 'instant' });
}

function take(text) {
    const tree = new DOMParser().parseFromString(text, 'text/html');
    // Another version of the program, or another page.
    if (sheetOf(tree) !== sheetOf(document)) {
        if (!partsOf(document).some(isUsed)) location.reload();
        return;
    }
    for (const fresh of partsOf(tree)) {
        const part = document.getElementById(fresh.id);
        const source = fresh.outerHTML;
        if (!part || written.get(fresh.id) === source || isUsed(part)) continue;
        swap(part, fresh);
        written.set(fresh.id, source);
    }
}

async function update() {
    const control = new AbortController();
    running = control;
    const limit = setTimeout(() => control.abort(), 10000);
    try {
        // The session must not live on by this alone.
        const answer = await fetch(location.href, {
            headers: { 'Mailroom-Refresh': '1' }, redirect: 'manual', cache: 'no-store', signal: control.signal,
        });
        // The log-in: the session has ended, and what it showed should go.
        if (answer.type === 'opaqueredirect' || answer.status === 401) { location.reload(); return; }
        if (!answer.ok) throw new Error(String(answer.status));
        const text = await answer.text();
        if (!paused && !pressed && !document.hidden) take(text);
        failures = 0;
        sayLive();
    } catch {
        // Paused, or hidden, while it ran.
        if (paused || document.hidden) return;
        failures += 1;
        if (failures > 1) say('stale', 'No answer from the server: what is shown may be out of date');
    } finally {
        clearTimeout(limit);
        running = null;
    }
}

function plan(delay) {
    clearTimeout(timer);
    if (every === 0 || paused || document.hidden) return;
    timer = setTimeout(async () => {
        if (!pressed && !running && !help?.open) await update();
        plan(Math.min(every * 2 ** Math.min(failures, 5), 60000));
    }, delay);
}

function pause() {
    if (every === 0) return;
    paused = !paused;
    pauseButton?.setAttribute('aria-pressed', String(paused));
    if (pauseButton) pauseButton.textContent = paused ? 'Resume' : 'Pause';
    if (paused) running?.abort();
    sayLive();
    plan(0);
}

// A click on what is swapped between press and release would be lost.
addEventListener('pointerdown', () => { pressed = true; });
for (const end of ['pointerup', 'pointercancel', 'blur']) addEventListener(end, () => { pressed = false; });
addEventListener('input', ({ target }) => { const part = target.closest?.('[data-live]'); if (part) touched.add(part); });
document.addEventListener('visibilitychange', () => plan(0));
pauseButton?.addEventListener('click', pause);
if (live) live.hidden = every === 0;
if (every > 0) { sayLive(); plan(every); }

// Copying: navigator.clipboard is there on https and localhost only.

function copyBySelection(text) {
    const area = document.createElement('textarea');
    area.value = text;
    area.className = 'hidden';
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    return done;
}

async function copy(button) {
    const text = button.dataset.copy;
    const done = await navigator.clipboard?.writeText(text).then(() => true, () => false) || copyBySelection(text);
    button.dataset.words ??= button.textContent;
    button.textContent = done ? 'Copied' : 'Not copied';
    button.focus();
    setTimeout(() => { button.textContent = button.dataset.words; }, 1500);
}

addEventListener('click', ({ target }) => { const button = target.closest?.('[data-copy]'); if (button) copy(button); });

// The theme: the system's, light or dark. The server writes it into data-theme of the next page.

const themeButton = find('#theme');
const THEMES = ['system', 'light', 'dark'];

function showTheme() {
    const theme = html.dataset.theme ?? 'system';
    (themeButton.querySelector('.word') ?? themeButton).textContent = theme[0].toUpperCase() + theme.slice(1);
    themeButton.title = `Theme: ${theme}`;
    themeButton.setAttribute('aria-label', themeButton.title);
}

themeButton?.addEventListener('click', () => {
    const theme = THEMES[(THEMES.indexOf(html.dataset.theme ?? 'system') + 1) % THEMES.length];
    if (theme === 'system') delete html.dataset.theme;
    else html.dataset.theme = theme;
    const age = theme === 'system' ? 0 : 31536000;
    document.cookie = `mailroom-theme=${theme}; path=${root}; max-age=${age}; samesite=lax${location.protocol === 'https:' ? '; secure' : ''}`;
    showTheme();
});
if (themeButton) showTheme();

// Keys, which the dialog lists. Not with a modifier; but with Shift, since some keyboards have / and ? there.

function step(by) {
    const rows = [...document.querySelectorAll('[data-row]')];
    const at = rows.indexOf(document.activeElement);
    const next = at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + by, 0), rows.length - 1);
    rows[next]?.focus({ preventScroll: true });
    rows[next]?.closest('tr, li')?.scrollIntoView({ block: 'nearest' });
}

addEventListener('keydown', (event) => {
    const { key, target } = event;
    if (event.defaultPrevented || event.isComposing || event.ctrlKey || event.metaKey || event.altKey || help?.open) return;
    if (target.matches?.(FIELDS)) { if (key === 'Escape') target.blur(); return; }
    if (key === '/') { find('#search')?.focus(); find('#search')?.select(); }
    else if (key === '?') help?.showModal();
    else if (key === 'r') pause();
    else if (key === 'j' || key === 'k') step(key === 'j' ? 1 : -1);
    else if (/^[a-z]$/.test(key)) find(`[data-key="${key}"]`)?.click();
    else return;
    event.preventDefault();
});
find('#help-open')?.addEventListener('click', () => help.showModal());
