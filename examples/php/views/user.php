<?php $this->layout('layout', ['title' => $user['name']]) ?>
<h1><?= $e($user['name']) ?></h1>
<dl>
<dt>Number</dt><dd><?= $e($user['id']) ?></dd>
<dt>Mail</dt><dd><a href="mailto:<?= $e($user['email']) ?>"><?= $e($user['email']) ?></a></dd>
<dt>Since</dt><dd><time><?= $e($user['joined']) ?></time></dd>
</dl>
<p><?= $language === 'zh' ? '欢迎回来' : 'Welcome back' ?>!</p>
