// Does with the page of `mailroom serve` what a request says, in Debian's Chromium, and prints what came of it.
//
//     node browser.mjs <directory of node_modules> < request.json > result.json
//
// The request:
//     name      of the files that are left of a failure
//     url       of the page of a database, as http://127.0.0.1:8425/app
//     role, password   by which it logs in first; without a role it does not
//     width, height, scheme   at the beginning: 1280, 800 and "light"
//     javascript   false: without; the default is true
//     shots     the folder for pictures
//     failures  the folder for a picture and the HTML of the page where a step failed
//     steps     objects with one of these each, in order; paths are below the url, or whole URLs
//       {"visit": path, "width", "height", "scheme", "axe": false, "shot": name, "full": false}
//                                   opens it, runs axe unless told not to, and takes a picture
//       {"set": {"width", "height", "scheme"}}
//       {"press": key}              as "m", "Enter", "Shift+?"
//       {"type": text}              into what has the focus
//       {"tab_to": selector}        presses Tab until that has the focus
//       {"click": selector}         and waits for the page to which it leads, if any
//       {"click": selector, "at": [x, y]}   at a point of it, for what is in a frame
//       {"fill": selector, "with": text}
//       {"select": selector, "with": value}
//       {"wait": selector}          until it is visible; with "gone": true, until it is not
//       {"wait_url": path}          until the page has it
//       {"pause": milliseconds}
//       {"tell": file}              makes the file, for a test that waits for it
//       {"wait_for": file}          until a test has made the file
//       {"read": selector}          the text of all that match
//       {"evaluate": expression}    in the page
//       {"axe": true}, {"shot": name}
//
// The result:
//     steps     one object for each that was done: what was asked for, and
//       visit: status, url, title, overflow (pixels by which it is wider than the window), axe
//       axe: [{id, impact, help, targets}]; others: url, title, value
//     requests  of other hosts or ports: [{method, url, page, blocked}]; blocked is why, or null
//     errors    of the console, and exceptions of scripts: [{text, page}]
//     violations   of a Content-Security-Policy: [{text, page}]
//     answers   of 400 and above: [{method, url, status, is_page}]; is_page: no part of a page, as a style sheet is
//     failed    null, or {step, message}; the exit status is 1 then
//
// It starts nothing but the browser, which ends with it.

import { access, mkdir, readFile, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';

/** For a step, and for all that a request asks for, on a machine that has more to do. */
const STEP = 60_000;
const ALL = 600_000;

const modules = process.argv[2];
const require = createRequire(join(modules, 'node_modules', 'x.js'));
const { chromium } = require('playwright-core');

const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
const request = JSON.parse(Buffer.concat(chunks).toString());
const home = new URL(request.url);
const base = request.url.replace(/\/$/, '');
const result = { steps: [], requests: [], errors: [], violations: [], answers: [], failed: null };

/** A URL of a path below the page. */
const whole = (path) => (/^https?:/.test(path) ? path : base + path);

let axeSource = null;

/** What axe finds in the page itself. Frames have mails in them, which are not ours. */
async function axe(page) {
    axeSource ??= await readFile(require.resolve('axe-core/axe.min.js'), 'utf8');
    // By the debugger's protocol, which no policy of the page forbids.
    await page.evaluate(axeSource);
    const { violations } = await page.evaluate(() => axe.run(document, { iframes: false, resultTypes: ['violations'] }));
    return violations.map(({ id, impact, help, nodes }) => ({
        id, impact, help, targets: nodes.map(({ target }) => target.join(' ')).slice(0, 10),
    }));
}

async function shoot(page, folder, name, full) {
    await mkdir(folder, { recursive: true });
    const path = join(folder, `${name}.png`);
    await page.screenshot({ path, fullPage: full, animations: 'disabled', caret: 'hide' });
    return path;
}

async function set(page, { width, height, scheme }) {
    const now = page.viewportSize();
    if (width || height) await page.setViewportSize({ width: width ?? now.width, height: height ?? now.height });
    if (scheme) await page.emulateMedia({ colorScheme: scheme });
}

const VERBS = {
    async visit(page, step) {
        await set(page, step);
        const answer = await page.goto(whole(step.visit), { waitUntil: 'load' });
        return {
            status: answer?.status() ?? null,
            overflow: await page.evaluate(() => Math.max(0, document.documentElement.scrollWidth - document.documentElement.clientWidth)),
            axe: step.axe === false || request.javascript === false ? null : await axe(page),
            picture: step.shot ? await shoot(page, request.shots, step.shot, step.full ?? true) : null,
        };
    },
    async set(page, step) { await set(page, step.set); },
    async press(page, step) { await page.keyboard.press(step.press); },
    async type(page, step) { await page.keyboard.type(step.type); },
    async tab_to(page, step) {
        for (let presses = 0; presses < 100; presses += 1) {
            await page.keyboard.press('Tab');
            if (await page.evaluate((selector) => document.activeElement.matches(selector), step.tab_to)) return;
        }
        throw new Error('Tab does not lead there');
    },
    async click(page, step) {
        await page.click(step.click, step.at && { position: { x: step.at[0], y: step.at[1] } });
        await page.waitForLoadState('load');
    },
    async fill(page, step) { await page.fill(step.fill, step.with); },
    async select(page, step) { await page.selectOption(step.select, step.with); },
    async wait(page, step) { await page.waitForSelector(step.wait, { state: step.gone ? 'hidden' : 'visible' }); },
    async wait_url(page, step) { await page.waitForURL(whole(step.wait_url)); },
    async pause(page, step) { await page.waitForTimeout(step.pause); },
    async tell(page, step) { await writeFile(step.tell, ''); },
    async wait_for(page, step) {
        const end = Date.now() + ALL;
        while (!(await access(step.wait_for).then(() => true, () => false))) {
            if (Date.now() > end) throw new Error('the test did not go on');
            await page.waitForTimeout(50);
        }
    },
    async read(page, step) { return { value: await page.locator(step.read).allInnerTexts() }; },
    async evaluate(page, step) { return { value: (await page.evaluate(step.evaluate)) ?? null }; },
    async axe(page) { return { axe: await axe(page) }; },
    async shot(page, step) { return { picture: await shoot(page, request.shots, step.shot, step.full ?? true) }; },
};

/** What only a verb may be: `axe` and `shot` are options of a visit, too. */
const verbOf = (step) => (step.visit === undefined ? Object.keys(VERBS).find((verb) => step[verb] !== undefined) : 'visit');

/** Notes what the context asks of others, and what its pages complain about. */
function listen(context) {
    const foreign = new Map();
    context.on('request', (asked) => {
        const url = new URL(asked.url());
        if (!/^(https?|wss?):$/.test(url.protocol) || url.host === home.host) return;
        const note = { method: asked.method(), url: asked.url(), page: asked.frame().page().url(), blocked: null };
        result.requests.push(note);
        foreign.set(asked, note);
    });
    context.on('requestfailed', (asked) => {
        if (foreign.has(asked)) foreign.get(asked).blocked = asked.failure().errorText;
    });
    context.on('response', (answer) => {
        const asked = answer.request();
        if (answer.status() < 400) return;
        result.answers.push({ method: asked.method(), url: asked.url(), status: answer.status(), is_page: asked.isNavigationRequest() });
    });
    context.on('console', (message) => {
        if (!['error', 'warning'].includes(message.type())) return;
        const note = { text: message.text(), page: message.location().url };
        // It is among the answers or the requests.
        if (note.text.startsWith('Failed to load resource')) return;
        if (/Content Security Policy|violates the following/i.test(note.text)) result.violations.push(note);
        else if (message.type() === 'error') result.errors.push(note);
    });
    context.on('weberror', (thrown) => result.errors.push({ text: String(thrown.error()), page: thrown.page()?.url() ?? '' }));
}

/** As a person does it: fills in the form and presses its button. */
async function logIn(page) {
    await page.goto(whole('/login'));
    await page.fill('input[name=role]', request.role);
    await page.fill('input[name=password]', request.password ?? '');
    await page.click('main form button');
    await page.waitForLoadState('load');
    if (await page.isVisible('input[name=password]')) throw new Error(`not logged in: ${await page.innerText('main')}`);
}

async function run(page) {
    let doing = { log_in: request.role };
    try {
        if (request.role) await logIn(page);
        for (const step of request.steps) {
            doing = step;
            const verb = verbOf(step);
            if (!verb) throw new Error('no such step');
            const found = await VERBS[verb](page, step);
            result.steps.push({ ...step, ...found, url: page.url(), title: await page.title() });
        }
    } catch (thrown) {
        result.failed = { step: doing, message: String(thrown.message).replaceAll(/\x1b\[\d*m/g, ''), page: page.url() };
        if (request.failures) {
            const name = `${(request.name ?? 'browser').replaceAll(/[^\w.-]+/g, '-')}-failed`;
            await shoot(page, request.failures, name, true).catch(() => {});
            await writeFile(join(request.failures, `${name}.html`), await page.content()).catch(() => {});
        }
    }
}

setTimeout(() => {
    result.failed ??= { step: null, message: `not done after ${ALL / 1000} s` };
    finish();
}, ALL).unref();

function finish() {
    process.stdout.write(JSON.stringify(result), () => process.exit(result.failed ? 1 : 0));
}

const browser = await chromium.launch({
    executablePath: process.env.MAILROOM_CHROMIUM || '/usr/bin/chromium',
    // No name but localhost is there: what a page asks of others is noted, and goes nowhere.
    args: ['--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1, EXCLUDE [::1]'],
});
const context = await browser.newContext({
    viewport: { width: request.width ?? 1280, height: request.height ?? 800 },
    colorScheme: request.scheme ?? 'light',
    javaScriptEnabled: request.javascript ?? true,
    locale: 'en-GB',
    reducedMotion: 'reduce',
});
context.setDefaultTimeout(STEP);
listen(context);
await run(await context.newPage());
await browser.close().catch(() => {});
finish();
