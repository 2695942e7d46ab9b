<h1><?= $e($title) ?></h1>
<?= $this->content() ?>